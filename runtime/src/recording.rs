//! Recording: streams the records in the rings to the host while the machine goes on. A task takes pages out of the
//! rings and sends each as a frame.
//!
//! Frames go to a virtio console that carries nothing else, if the machine has one (Virtio 1.2, 5.3). Otherwise they go
//! over the UART as marked text, between the lines of the console.
//!
//! As long as the host takes no frames, a recording waits, and the rings lose records. At its end, it gives up a frame
//! that the host does not take within a second, and all that would follow.

use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use fallible::{Arc, OutOfMemory, Text};
use kprobes_console::tracing;
use kprobes_trace::ring::{RAW_PAGE, Record};
use kprobes_trace::text::task_name;
use kprobes_wire::mark::{Mark, Marked};
use kprobes_wire::record::{Base64, HEADER, PayloadKind, header};
use spin::{Mutex, MutexGuard, Once};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};

use crate::sync::PreemptLock;
use crate::task::JoinHandle;
use crate::virtio::{self, Memory, UnclaimedDevice, VirtioError};
use crate::{task, time, uart};

/// How long the task sleeps when the rings are empty. A probe hit cannot wake a task, so the task polls.
const PERIOD: Duration = Duration::from_millis(10);
/// The period when frames go over the UART. It is longer because a partly filled page takes as long on a slow line as a
/// full one.
const PERIOD_OF_UART: Duration = Duration::from_millis(200);
/// How long the device may take to consume a frame after the recording was told to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// The channel to the host, with a send queue only. The driver in `virtio-drivers` would also allocate for each byte
/// that may arrive, and nothing arrives here.
struct Channel {
    transport: MmioTransport<'static>,
    /// `None` if the device was reset, so that it forgets a frame.
    sending: Option<VirtQueue<Memory, DEPTH>>,
}

/// The queue to the host (Virtio 1.2, 5.3.2), and its size in buffers. One buffer is sent at a time.
const TO_HOST: u16 = 1;
const DEPTH: usize = 2;
/// The feature bit VIRTIO_F_VERSION_1 (Virtio 1.2, 6): the device conforms to the standard.
const VERSION_1: u64 = 1 << 32;

impl Channel {
    /// Initializes the device.
    fn new(mut transport: MmioTransport<'static>) -> virtio_drivers::Result<Self> {
        let sending = Some(start(&mut transport)?);
        Ok(Self { transport, sending })
    }

    /// Sends `frame`, which lies in the heap, and waits until the device has consumed it. Returns false if the device
    /// does not accept it, or if `is_over` returns true first.
    fn send(&mut self, frame: &[u8], is_over: impl Fn() -> bool) -> bool {
        let Self { transport, sending } = self;
        if sending.is_none() {
            *sending = start(transport).ok();
        }
        let Some(queue) = sending else { return false };
        // SAFETY: the frame is borrowed until the device has given it back, or has been reset, below.
        let Ok(token) = (unsafe { queue.add(&[frame], &mut []) }) else { return false };
        if queue.should_notify() {
            transport.notify(TO_HOST);
        }
        while !queue.can_pop() && !is_over() {
            core::hint::spin_loop();
        }
        // SAFETY: `add` has returned this token for this slice.
        if queue.can_pop() && unsafe { queue.pop_used(token, &[frame], &mut []) }.is_ok() {
            return true;
        }
        // The device has no buffers once it is reset, which its status tells (Virtio 1.2, 2.4).
        transport.set_status(DeviceStatus::empty());
        while !transport.get_status().is_empty() {
            core::hint::spin_loop();
        }
        *sending = None;
        false
    }
}

/// Initializes the device (Virtio 1.2, 3.1.1), and returns its queue.
fn start(transport: &mut MmioTransport<'static>) -> virtio_drivers::Result<VirtQueue<Memory, DEPTH>> {
    let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(DeviceStatus::empty());
    transport.set_status(known);
    let features = transport.read_device_features() & VERSION_1;
    transport.write_driver_features(features);
    transport.set_status(known | DeviceStatus::FEATURES_OK);
    let sending = VirtQueue::new(transport, TO_HOST, false, false)?;
    transport.set_status(known | DeviceStatus::FEATURES_OK | DeviceStatus::DRIVER_OK);
    Ok(sending)
}

/// The channel to the host, if the machine has one. Set at most once, at boot.
static CHANNEL: Once<Mutex<Channel>> = Once::new();

/// Takes the channel out of `devices`. Calls `complain` with the error of each console that cannot be used.
pub(crate) fn initialize(devices: &mut Vec<UnclaimedDevice>, mut complain: impl FnMut(VirtioError)) {
    let taken = virtio::take(devices, DeviceType::Console, "channel", Channel::new, &mut complain);
    // The driver polls the device for completion and uses no interrupt, so the interrupt is ignored.
    if let Some((channel, _)) = taken.into_iter().next() {
        CHANNEL.call_once(|| Mutex::new(channel));
    }
}

/// The result of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Records that were sent. Records are taken from the rings in batches; if a frame of a batch was not sent, all of
    /// the batch counts as lost.
    pub records: u64,
    /// Records that were lost: overwritten before they were taken, dropped because the ring was full, or in frames that
    /// the channel did not take.
    pub lost: u64,
    /// Frames that the channel did not take.
    pub unsent: u64,
    /// Memory ran out when the recording ended, so the rings still hold records.
    pub is_short: bool,
}

/// A recording in progress. It goes on until [`end`](Self::end) is called.
pub struct Recording {
    /// The counter when the recording was told to end; 0 before that.
    ended: Arc<AtomicU64>,
    outcome: Arc<PreemptLock<Outcome>>,
    task: JoinHandle,
}

impl Recording {
    /// Starts a recording with the records that are already in the rings.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the task or its buffers.
    pub fn begin() -> Result<Self, OutOfMemory> {
        let ended = Arc::try_new(AtomicU64::new(0))?;
        let outcome = Arc::try_new(PreemptLock::new(Outcome::default()))?;
        let mut sender = Sender::new(ended.clone())?;
        let task = task::try_spawn("record", {
            let outcome = outcome.clone();
            move || {
                sender.send_all();
                *outcome.lock() = sender.outcome;
            }
        })?;
        Ok(Self { ended, outcome, task })
    }

    /// Sends what is in the rings by now, and ends the recording. If the channel does not take a frame within
    /// [`PATIENCE`], it and the frames after it are not sent.
    #[must_use]
    pub fn end(self) -> Outcome {
        self.ended.store(time::counter().max(1), Ordering::Release);
        self.task.join();
        *self.outcome.lock()
    }
}

/// The task's part of a recording.
struct Sender {
    /// The channel, locked for the whole recording, also while the task sleeps. Nothing else waits for this lock: a
    /// second recording uses the UART instead. `None` if frames go over the UART.
    channel: Option<MutexGuard<'static, Channel>>,
    /// The frame being sent.
    frame: Vec<u8>,
    number: u32,
    /// The tasks that have records, in ascending order of their numbers, each with its name and whether the host knows
    /// the name.
    tasks: Vec<(u32, [u8; 16], bool)>,
    /// The counter when the recording was told to end; 0 before that.
    ended: Arc<AtomicU64>,
    /// Whether the channel was given up, so that no more frames are sent.
    has_given_up: bool,
    outcome: Outcome,
}

impl Sender {
    fn new(ended: Arc<AtomicU64>) -> Result<Self, OutOfMemory> {
        let mut frame = Vec::new();
        frame.try_reserve_exact(HEADER + RAW_PAGE)?;
        let channel = CHANNEL.get().and_then(Mutex::try_lock);
        let (tasks, outcome) = (Vec::new(), Outcome::default());
        Ok(Self { channel, frame, number: 0, tasks, ended, has_given_up: false, outcome })
    }

    fn send_all(&mut self) {
        loop {
            let is_last = self.ended.load(Ordering::Acquire) != 0;
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
            self.send(PayloadKind::End, 0, text.0.as_bytes());
        }
    }

    /// Sends the records of each ring in turn. Returns how many records it took.
    fn take(&mut self) -> Result<u64, OutOfMemory> {
        let (rings, clock) = (tracing::rings(), kprobes_console::time::clock());
        let mut records = 0;
        for cpu in 0..rings.cpus() {
            // The budget for this ring is one round of it. So a CPU that records as fast as the task sends does not
            // keep the other CPUs waiting.
            let mut left = rings.sizes().nth(cpu).unwrap_or(0);
            loop {
                let tasks = &mut self.tasks;
                let pages = rings.take_pages(cpu, clock, &mut |record| note(tasks, record))?;
                self.outcome.lost += pages.lost;
                records += pages.records;
                let unsent = self.outcome.unsent;
                pages.bytes.chunks(RAW_PAGE).for_each(|page| self.send(PayloadKind::Page, cpu as u16, used(page)));
                let is_sent = self.outcome.unsent == unsent;
                *(if is_sent { &mut self.outcome.records } else { &mut self.outcome.lost }) += pages.records;
                left = left.saturating_sub(pages.bytes.len());
                if pages.records == 0 || left == 0 {
                    break;
                }
            }
        }
        Ok(records)
    }

    /// Sends the task names that the host does not know yet.
    fn send_tasks(&mut self) {
        for index in 0..self.tasks.len() {
            let mut text = Text::default();
            if let Some((task, name, is_known)) = self.tasks.get_mut(index)
                && !*is_known
                && write!(text, "{task} {}", task_name(&name[..])).is_ok()
            {
                *is_known = true;
                self.send(PayloadKind::Task, 0, text.0.as_bytes());
            }
        }
    }

    fn send(&mut self, kind: PayloadKind, cpu: u16, payload: &[u8]) {
        let header = header(kind, cpu, self.number, payload);
        self.number = self.number.wrapping_add(1);
        self.frame.clear();
        // The reserved room suffices, because no payload is longer than a page.
        self.frame.extend_from_slice(&header);
        self.frame.extend_from_slice(payload);
        let Some(channel) = &mut self.channel else {
            return uart::write_aside(format_args!("{}", Marked(Mark::Frame, Base64(&self.frame))));
        };
        let (begun, patience) = (time::counter(), time::ticks(PATIENCE));
        let is_over = || {
            let ended = self.ended.load(Ordering::Relaxed);
            ended != 0 && time::counter().saturating_sub(ended.max(begun)) >= patience
        };
        if self.has_given_up || !channel.send(&self.frame, is_over) {
            self.outcome.unsent += 1;
            self.has_given_up = self.ended.load(Ordering::Relaxed) != 0;
        }
    }
}

/// Stores the task of a record and the newest of its names.
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

/// Returns the page without the zeros at its end.
fn used(page: &[u8]) -> &[u8] {
    let length = page.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    page.get(..length).unwrap_or(page)
}
