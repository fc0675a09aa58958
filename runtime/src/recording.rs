//! What the rings record leaves the machine while it goes on: a task takes pages out of them, and sends each as a frame to the host.
//!
//! The frames go to a virtio console that carries nothing else, if the machine has one (Virtio 1.2, 5.3); otherwise, as marked text,
//! over the UART, between the lines of the console.

use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use fallible::{Arc, OutOfMemory, Text};
use kprobes_console::tracing;
use kprobes_trace::ring::{RAW_PAGE, Record};
use kprobes_trace::text::task_name;
use kprobes_wire::mark::{self, Marked};
use kprobes_wire::record::{Base64, HEADER, Kind, header};
use spin::{Mutex, MutexGuard, Once};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};

use crate::sync::PreemptLock;
use crate::task::JoinHandle;
use crate::virtio::{self, DeviceError, Found, Memory};
use crate::{task, uart};

/// How long the task sleeps where there is nothing to take: a hit cannot wake a task.
const PERIOD: Duration = Duration::from_millis(10);
/// The same where a page that is not full takes as much of a slow line as one that is.
const PERIOD_OF_UART: Duration = Duration::from_millis(200);

/// The driver of the crate allocates for each byte that may come: nothing comes here, so this has a queue to send, and no other.
struct Channel {
    transport: MmioTransport<'static>,
    sending: VirtQueue<Memory, DEPTH>,
}

/// The queue to the host (Virtio 1.2, 5.3.2), and buffers in it: one is sent at a time.
const TO_HOST: u16 = 1;
const DEPTH: usize = 2;
/// That the device keeps to the standard (Virtio 1.2, 6).
const VERSION_1: u64 = 1 << 32;

impl Channel {
    /// Starts the device.
    fn new(mut transport: MmioTransport<'static>) -> virtio_drivers::Result<Self> {
        // The order of Virtio 1.2, 3.1.1.
        let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
        transport.set_status(DeviceStatus::empty());
        transport.set_status(known);
        let features = transport.read_device_features() & VERSION_1;
        transport.write_driver_features(features);
        transport.set_status(known | DeviceStatus::FEATURES_OK);
        let sending = VirtQueue::new(&mut transport, TO_HOST, false, false)?;
        transport.set_status(known | DeviceStatus::FEATURES_OK | DeviceStatus::DRIVER_OK);
        Ok(Self { transport, sending })
    }

    /// Sends bytes that lie in the heap, and waits until the device has done with them.
    fn send(&mut self, bytes: &[u8]) -> virtio_drivers::Result {
        self.sending.add_notify_wait_pop(&[bytes], &mut [], &mut self.transport).map(drop)
    }
}

/// The channel, if the machine has one. Set once, at boot.
static CHANNEL: Once<Mutex<Channel>> = Once::new();

/// Takes the channel out of `devices`. Calls `complain` with what is wrong with one that cannot be used.
pub(crate) fn initialize(devices: &mut Vec<Found>, mut complain: impl FnMut(DeviceError)) {
    let taken = virtio::take(devices, DeviceType::Console, "channel", Channel::new, &mut complain);
    // It is asked whether it has done with what it was given, and interrupts nothing.
    if let Some((channel, _)) = taken.into_iter().next() {
        CHANNEL.call_once(|| Mutex::new(channel));
    }
}

/// What a recording has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Records that were sent.
    pub records: u64,
    /// Records that were overwritten, or found no room, before they could be taken.
    pub lost: u64,
    /// Frames that the channel has not taken.
    pub unsent: u64,
    /// There was no memory at the end for what was in the rings, which is still there.
    pub is_short: bool,
}

/// A recording, which goes on until it is ended.
pub struct Recording {
    is_ending: Arc<AtomicBool>,
    outcome: Arc<PreemptLock<Outcome>>,
    task: JoinHandle,
}

impl Recording {
    /// Begins with what is in the rings.
    ///
    /// # Errors
    ///
    /// There is no memory for its task.
    pub fn begin() -> Result<Self, OutOfMemory> {
        let is_ending = Arc::try_new(AtomicBool::new(false))?;
        let outcome = Arc::try_new(PreemptLock::new(Outcome::default()))?;
        let mut sender = Sender::new()?;
        let task = task::try_spawn("record", {
            let (is_ending, outcome) = (is_ending.clone(), outcome.clone());
            move || {
                sender.send_all(&is_ending);
                *outcome.lock() = sender.outcome;
            }
        })?;
        Ok(Self { is_ending, outcome, task })
    }

    /// Sends what is in the rings by now, and ends.
    #[must_use]
    pub fn end(self) -> Outcome {
        self.is_ending.store(true, Ordering::Release);
        self.task.join();
        *self.outcome.lock()
    }
}

/// The task's part of a recording.
struct Sender {
    /// Nothing, where frames go over the UART. It is held while the task sleeps, and nobody waits for it: another recording at
    /// the same time would use the UART.
    channel: Option<MutexGuard<'static, Channel>>,
    /// The frame that is sent: memory of the heap, which a device can be given.
    frame: Vec<u8>,
    number: u32,
    /// The tasks that have records, in ascending order of their numbers, and whether the host knows the name.
    tasks: Vec<(u32, [u8; 16], bool)>,
    outcome: Outcome,
}

impl Sender {
    fn new() -> Result<Self, OutOfMemory> {
        let mut frame = Vec::new();
        frame.try_reserve_exact(HEADER + RAW_PAGE)?;
        let channel = CHANNEL.get().and_then(Mutex::try_lock);
        Ok(Self { channel, frame, number: 0, tasks: Vec::new(), outcome: Outcome::default() })
    }

    fn send_all(&mut self, is_ending: &AtomicBool) {
        loop {
            let is_last = is_ending.load(Ordering::Acquire);
            let taken = self.take();
            self.send_tasks();
            match taken {
                _ if is_last => {
                    self.outcome.is_short = taken.is_err();
                    break;
                }
                Ok(1..) => {}
                Ok(0) | Err(OutOfMemory) => {
                    task::sleep(if self.channel.is_some() { PERIOD } else { PERIOD_OF_UART });
                }
            }
        }
        let mut text = Text::default();
        let Outcome { records, lost, .. } = self.outcome;
        if write!(text, "{records} {lost}").is_ok() {
            self.send(Kind::End, 0, text.0.as_bytes());
        }
    }

    /// Sends what was in each ring when its turn came. Returns how many records there were.
    fn take(&mut self) -> Result<u64, OutOfMemory> {
        let (rings, clock) = (tracing::rings(), kprobes_console::time::clock());
        let mut records = 0;
        for cpu in 0..rings.cpus() {
            // A CPU that records as fast as this is sent is left after a round of its ring, so that the others have their turn.
            let mut left = rings.sizes().nth(cpu).unwrap_or(0);
            loop {
                let tasks = &mut self.tasks;
                let pages = rings.take_pages(cpu, clock, &mut |record| note(tasks, record))?;
                self.outcome.records += pages.records;
                self.outcome.lost += pages.lost;
                records += pages.records;
                pages.bytes.chunks(RAW_PAGE).for_each(|page| self.send(Kind::Page, cpu as u16, used(page)));
                left = left.saturating_sub(pages.bytes.len());
                if pages.records == 0 || left == 0 {
                    break;
                }
            }
        }
        Ok(records)
    }

    /// Sends the names that the host does not know.
    fn send_tasks(&mut self) {
        for index in 0..self.tasks.len() {
            let mut text = Text::default();
            if let Some((task, name, is_known)) = self.tasks.get_mut(index)
                && !*is_known
                && write!(text, "{task} {}", task_name(&name[..])).is_ok()
            {
                *is_known = true;
                self.send(Kind::Task, 0, text.0.as_bytes());
            }
        }
    }

    fn send(&mut self, kind: Kind, cpu: u16, payload: &[u8]) {
        let header = header(kind, cpu, self.number, payload);
        self.number = self.number.wrapping_add(1);
        self.frame.clear();
        // There is room: no payload is longer than a page.
        self.frame.extend_from_slice(&header);
        self.frame.extend_from_slice(payload);
        match &mut self.channel {
            Some(channel) => self.outcome.unsent += u64::from(channel.send(&self.frame).is_err()),
            None => uart::write_aside(format_args!("{}", Marked(mark::Kind::Frame, Base64(&self.frame)))),
        }
    }
}

/// Remembers the task of a record, and the newest of its names.
fn note(tasks: &mut Vec<(u32, [u8; 16], bool)>, record: &Record<'_>) -> Result<(), OutOfMemory> {
    let task = record.task();
    match tasks.binary_search_by_key(&task, |(task, ..)| *task) {
        Ok(at) => {
            if let Some((_, name, is_known)) = tasks.get_mut(at)
                && *name != record.name
            {
                (*name, *is_known) = (record.name, false);
            }
        }
        Err(at) => {
            tasks.try_reserve(1)?;
            tasks.insert(at, (task, record.name, false));
        }
    }
    Ok(())
}

/// A page without the zeros at its end.
fn used(page: &[u8]) -> &[u8] {
    let length = page.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    page.get(..length).unwrap_or(page)
}
