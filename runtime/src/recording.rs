//! Recording: streams the records in the rings to the host while the machine goes on. A task takes pages out of the
//! rings and sends each as a frame.
//!
//! Frames go to a virtio console that carries nothing else, if the machine has one (Virtio 1.2, 5.3). Otherwise they go
//! over the UART as marked text, between the lines of the console.
//!
//! As long as the host takes no frames, a recording waits, and the rings lose records. The end of a recording waits for
//! a moment only, and tells how many frames were not sent.

use alloc::vec::Vec;
use core::fmt::Write;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
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
    sending: VirtQueue<Memory, DEPTH>,
    /// The frame that was sent last, in heap memory, which a device can be given. It does not change while the device
    /// has it, which may be after the end of the recording.
    frame: Vec<u8>,
    /// If the device has the frame: the queue's token for it, and the counter when it was sent.
    sent: Option<(u16, u64)>,
}

/// The queue to the host (Virtio 1.2, 5.3.2), and its size in buffers. One buffer is sent at a time.
const TO_HOST: u16 = 1;
const DEPTH: usize = 2;
/// The feature bit VIRTIO_F_VERSION_1 (Virtio 1.2, 6): the device conforms to the standard.
const VERSION_1: u64 = 1 << 32;

impl Channel {
    /// Initializes the device.
    fn new(mut transport: MmioTransport<'static>) -> virtio_drivers::Result<Self> {
        // The initialization sequence of Virtio 1.2, 3.1.1.
        let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
        transport.set_status(DeviceStatus::empty());
        transport.set_status(known);
        let features = transport.read_device_features() & VERSION_1;
        transport.write_driver_features(features);
        transport.set_status(known | DeviceStatus::FEATURES_OK);
        let sending = VirtQueue::new(&mut transport, TO_HOST, false, false)?;
        transport.set_status(known | DeviceStatus::FEATURES_OK | DeviceStatus::DRIVER_OK);
        Ok(Self { transport, sending, frame: Vec::with_capacity(HEADER + RAW_PAGE), sent: None })
    }

    /// Sends `frame`, which becomes another buffer of the same capacity, and waits until the device has consumed it.
    /// Returns false if the device does not accept the frame, or does not consume it or the one before it in time: see
    /// [`wait`](Self::wait).
    fn send(&mut self, frame: &mut Vec<u8>, is_ending: &AtomicBool) -> bool {
        if !self.wait(is_ending) {
            return false;
        }
        mem::swap(&mut self.frame, frame);
        // SAFETY: the device has no frame, and this one does not change until `wait` has taken it back.
        let Ok(token) = (unsafe { self.sending.add(&[&self.frame[..]], &mut []) }) else { return false };
        self.sent = Some((token, time::counter()));
        if self.sending.should_notify() {
            self.transport.notify(TO_HOST);
        }
        self.wait(is_ending)
    }

    /// Waits until the device has consumed the frame that it has, if it has one. Returns false if it keeps the frame:
    /// because `is_ending` is true and [`PATIENCE`] has passed since the frame was sent, or because the device returned
    /// something else.
    fn wait(&mut self, is_ending: &AtomicBool) -> bool {
        let Some((token, since)) = self.sent else { return true };
        let deadline = since.saturating_add(time::ticks(PATIENCE));
        while !self.sending.can_pop() {
            if is_ending.load(Ordering::Relaxed) && time::counter() >= deadline {
                return false;
            }
            core::hint::spin_loop();
        }
        // SAFETY: `send` gave the device this frame under this token, and the frame has not changed.
        let is_consumed = unsafe { self.sending.pop_used(token, &[&self.frame[..]], &mut []) }.is_ok();
        if is_consumed {
            self.sent = None;
        }
        is_consumed
    }
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
    /// Records that were sent.
    pub records: u64,
    /// Records that were lost: overwritten before they were taken, or dropped because the ring was full.
    pub lost: u64,
    /// Frames that the channel did not accept.
    pub unsent: u64,
    /// Memory ran out when the recording ended, so the rings still hold records.
    pub is_short: bool,
}

/// A recording in progress. It goes on until [`end`](Self::end) is called.
pub struct Recording {
    is_ending: Arc<AtomicBool>,
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
        let is_ending = Arc::try_new(AtomicBool::new(false))?;
        let outcome = Arc::try_new(PreemptLock::new(Outcome::default()))?;
        let mut sender = Sender::new(is_ending.clone())?;
        let task = task::try_spawn("record", {
            let outcome = outcome.clone();
            move || {
                sender.send_all();
                *outcome.lock() = sender.outcome;
            }
        })?;
        Ok(Self { is_ending, outcome, task })
    }

    /// Sends what is in the rings by now, and ends the recording. If the channel does not take a frame within a second,
    /// it and the frames after it are not sent.
    #[must_use]
    pub fn end(self) -> Outcome {
        self.is_ending.store(true, Ordering::Release);
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
    /// Whether the recording was told to end.
    is_ending: Arc<AtomicBool>,
    outcome: Outcome,
}

impl Sender {
    fn new(is_ending: Arc<AtomicBool>) -> Result<Self, OutOfMemory> {
        let mut frame = Vec::new();
        frame.try_reserve_exact(HEADER + RAW_PAGE)?;
        let channel = CHANNEL.get().and_then(Mutex::try_lock);
        Ok(Self { channel, frame, number: 0, tasks: Vec::new(), is_ending, outcome: Outcome::default() })
    }

    fn send_all(&mut self) {
        loop {
            let is_last = self.is_ending.load(Ordering::Acquire);
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
                self.outcome.records += pages.records;
                self.outcome.lost += pages.lost;
                records += pages.records;
                pages.bytes.chunks(RAW_PAGE).for_each(|page| self.send(PayloadKind::Page, cpu as u16, used(page)));
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
        match &mut self.channel {
            Some(channel) => self.outcome.unsent += u64::from(!channel.send(&mut self.frame, &self.is_ending)),
            None => uart::write_aside(format_args!("{}", Marked(Mark::Frame, Base64(&self.frame)))),
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
