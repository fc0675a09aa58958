//! The traits of machines: what can make a difference to a test.

use serde::Deserialize;

/// An interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interrupts {
    GicV2,
    GicV3,
    /// The local controller of the Raspberry Pi 3.
    Bcm2836,
}

/// An exception level at which a kernel is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryLevel {
    El1,
    El2,
}

/// The places where the machine takes interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interruption {
    /// Between the blocks of code that QEMU translates.
    #[default]
    Blocks,
    /// Between any two instructions, as on hardware.
    Instructions,
}

/// The traits of a configuration.
#[derive(Clone, Debug)]
pub struct Traits {
    pub cpus: u32,
    pub core: String,
    pub interrupts: Interrupts,
    pub entry: EntryLevel,
    pub board: String,
    pub interruption: Interruption,
    /// Needs of tests that the configuration does not meet.
    pub lacks: Vec<String>,
}
