//! Loads that may fault, and report this instead.

use core::mem::MaybeUninit;

use aarch64_kprobes::exception::nofault::{self, Fault};

use crate::test;

test!(
    fn good_addresses_are_read() {
        let value = 0x8899_aabb_ccdd_eeffu64;
        let address = &raw const value as usize;
        // SAFETY: all addresses are within `value`.
        unsafe {
            assert_eq!(nofault::read::<u64>(address), Ok(value));
            assert_eq!(nofault::read::<u32>(address + 4), Ok(0x8899_aabb));
            assert_eq!(nofault::read::<i16>(address), Ok(0xeeffu16.cast_signed()));
            assert_eq!(nofault::read::<u8>(address + 7), Ok(0x88));
            assert_eq!(nofault::read::<i8>(address + 7), Ok(-0x78));
        }
        let mut buffer = [MaybeUninit::<u8>::uninit(); 8];
        // SAFETY: the bytes are those of `value`.
        assert_eq!(unsafe { nofault::read_bytes(address, &mut buffer) }, 8);
        // SAFETY: `read_bytes` returned 8, so it has written all bytes.
        let bytes = buffer.map(|byte| unsafe { byte.assume_init() });
        assert_eq!(bytes, value.to_ne_bytes());
    }
);

test!(
    fn wild_addresses_are_an_answer() {
        for address in [0, 8, 0x1234_5678_9abc, 0x00ff_0000_0000_0000, usize::MAX - 7, 0xffff_ffd0_0000_0000] {
            // SAFETY: nothing is mapped at these addresses, so nothing is read.
            let faults = unsafe { [nofault::read::<u64>(address).err(), nofault::read::<u8>(address).err()] };
            for fault in faults {
                // The class 0x25 is a data abort from the same exception level.
                let Some(Fault { address: at, syndrome }) = fault else { panic!("{address:#x} can be read") };
                assert_eq!((at, syndrome >> 26), (address, 0x25));
            }
        }
    }
);

test!(
    fn bytes_are_read_up_to_the_end_of_the_page() {
        let stack = runtime::task::current().stack();
        let mut buffer = [MaybeUninit::<u8>::uninit(); 64];
        // A guard lies above the top of a stack.
        //
        // SAFETY: the stack is mapped, and nothing is mapped above it.
        assert_eq!(unsafe { nofault::read_bytes(stack.end - 10, &mut buffer) }, 10);
    }
);
