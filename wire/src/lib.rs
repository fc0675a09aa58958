//! What a kernel and the host command say to each other besides text for people: each part is written by one of them and read by the
//! other, so that both sides of it stand together here.

#![cfg_attr(not(any(test, feature = "host")), no_std)]

pub mod mark;
pub mod record;
