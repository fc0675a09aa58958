//! The disk: requests of many tasks at once, and every way in which a request can end.

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::{Call, Kretprobe};
use runtime::block::request::Operation;
use runtime::block::{self, BlockError, Disk, SECTOR};
use runtime::task;
use runtime::workload::{self, disk::is_right};

use crate::{fixture, test};

fn disk() -> &'static Disk {
    block::disks().first().expect("the tests here are not run without")
}

test!(
    depends(cpus, interrupts),
    needs DISK,
    fn several_tasks_read_all_of_the_disk() {
        const PART: usize = 200;
        let disk = disk();
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                task::spawn("reader", move || {
                    for part in (0..disk.capacity()).step_by(PART).skip(number).step_by(8) {
                        let count = (disk.capacity() - part).min(PART as u64) as usize;
                        let sectors = disk.read(part, count).unwrap();
                        assert_eq!(sectors.len(), count * SECTOR);
                        assert!(is_right(part, &sectors), "of {count} sectors from {part} on, some are wrong");
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
    }
);

test!(
    depends(cpus),
    needs DISK,
    fn a_task_has_more_requests_than_the_disk_takes_at_a_time() {
        let disk = disk();
        let requests: Vec<_> = (0..100)
            .map(|number| (number * 31, vec![0; 3 * SECTOR].into_boxed_slice()))
            .map(|(sector, buffer)| (sector, disk.submit(Operation::Read, sector, buffer).unwrap()))
            .collect();
        for (sector, request) in requests {
            assert!(is_right(sector, &request.wait().unwrap()), "sector {sector} is wrong");
        }
    }
);

test!(
    needs DISK,
    fn what_is_written_is_read_again() {
        let disk = disk();
        let text: Vec<u8> = (0..200 * SECTOR).map(|index| (index / 7) as u8).collect();
        disk.write(1000, text.clone().into_boxed_slice()).unwrap();
        assert_eq!(*disk.read(1000, 200).unwrap(), *text);
        assert!(is_right(999, &disk.read(999, 1).unwrap()));
        assert!(is_right(1200, &disk.read(1200, 1).unwrap()));
    }
);

test!(
    needs DISK,
    fn what_is_not_on_the_disk_is_refused() {
        let disk = disk();
        let end = disk.capacity();
        assert_eq!(disk.read(end, 1).err(), Some(BlockError::PastTheEnd(end + 1, end)));
        assert_eq!(disk.read(end - 1, 2).err(), Some(BlockError::PastTheEnd(end + 1, end)));
        assert_eq!(disk.read(u64::MAX, 1).err(), Some(BlockError::PastTheEnd(u64::MAX, end)));
        assert_eq!(disk.read(0, 0).err(), Some(BlockError::Length(0)));
        assert_eq!(disk.read(0, usize::MAX).err(), Some(BlockError::OutOfMemory));
        let odd = vec![0; SECTOR + 1].into_boxed_slice();
        assert_eq!(disk.write(0, odd).err(), Some(BlockError::Length(SECTOR + 1)));
        assert!(is_right(end - 1, &disk.read(end - 1, 1).unwrap()));
    }
);

test!(
    depends(interrupts),
    needs DISK,
    fn returns_of_the_completion_are_seen() {
        static MORE: AtomicU64 = AtomicU64::new(0);
        static LAST: AtomicU64 = AtomicU64::new(0);
        extern "C" fn returned(call: &mut Call<'_>) {
            // The result is a `bool`, whose upper bits are unspecified (AAPCS64, 6.8.2).
            let more = call.return_value() & 1 != 0;
            if more { &MORE } else { &LAST }.fetch_add(1, Relaxed);
        }
        let workload = workload::find("disk").unwrap();
        let function = fixture::address_of("runtime::block::request::update_request");
        let probe = Kretprobe::at(function).handler(returned).register().unwrap();
        let report = workload::run(workload, 100, 4, || false).unwrap();
        assert_eq!((report.right, report.wrong), (100, 0));
        drop(probe);
        assert_eq!((MORE.load(Relaxed), LAST.load(Relaxed)), (100, 100));
    }
);
