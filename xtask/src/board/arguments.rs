//! Makes QEMU's command line for a board.

use std::{ffi::OsString, path::Path};

use anyhow::{Result, ensure};

use super::{Board, Configuration, Interruption, Interrupts};
use crate::{disk, machine::option_value, setup::trees};

/// Options of the command line that override a configuration.
#[derive(clap::Args, Default)]
pub struct Overrides {
    /// The number of CPUs of the machine.
    #[arg(long, value_name = "N")]
    smp: Option<u32>,
    /// Options of QEMU's machine, such as `virtualization=on`.
    #[arg(long, value_name = "K=V", value_delimiter = ',', value_parser = key_and_value)]
    machine: Vec<(String, String)>,
    /// QEMU's name of the CPU.
    #[arg(long, value_name = "NAME")]
    cpu: Option<String>,
}

impl Overrides {
    /// Overrides the number of CPUs, and their kind if `cpu` names one.
    pub fn cpus(smp: u32, cpu: Option<String>) -> Self {
        Self { smp: Some(smp), machine: Vec::new(), cpu }
    }
}

fn key_and_value(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("an option of the machine has the form KEY=VALUE"),
    }
}

impl Board {
    /// Returns QEMU's arguments for this machine, with `image` to boot.
    pub fn arguments(
        &self,
        configuration: &Configuration,
        overrides: &Overrides,
        image: &Path,
    ) -> Result<Vec<OsString>> {
        let mut arguments = self.machine_arguments(configuration, overrides)?;
        arguments.extend(["-kernel".into(), image.into()]);
        if let Some(tree) = &self.device_tree {
            arguments.extend(["-dtb".into(), trees::path(tree).into()]);
        }
        let smp = self.wanted_cpus(configuration, overrides)?;
        if self.qemu()?.fixed_smp && smp < self.qemu()?.max_smp {
            arguments.extend(["-append".into(), format!("maxcpus={smp}").into()]);
            if smp == 1 {
                // The other CPUs wait for events, and QEMU spends a thread's full time on each of them. If they share
                // one thread with the running CPU, QEMU passes over them.
                arguments.extend(["-accel".into(), "tcg,thread=single".into()]);
            }
        }
        Ok(arguments)
    }

    /// Returns QEMU's arguments for this machine, with nothing in its memory.
    pub fn machine_arguments(&self, configuration: &Configuration, overrides: &Overrides) -> Result<Vec<OsString>> {
        let qemu = self.qemu()?;
        let wanted = self.wanted_cpus(configuration, overrides)?;
        let smp = if qemu.fixed_smp { qemu.max_smp } else { wanted };
        let mut options = configuration.machine_options.clone();
        options.extend(overrides.machine.iter().cloned());
        let is_gic_v2 =
            qemu.interrupts == Interrupts::GicV2 && options.get("gic-version").is_none_or(|version| version == "2");
        ensure!(
            smp <= GIC_V2_CPUS || !is_gic_v2,
            "a GICv2 has interfaces for {GIC_V2_CPUS} CPUs: for {smp}, add --machine gic-version=3"
        );
        let mut machine = qemu.machine.clone();
        for (key, value) in options {
            machine += &format!(",{key}={value}");
        }
        let interruption: &[&str] = match configuration.interruption {
            Interruption::Blocks => &[],
            Interruption::Instructions => &["-accel", "tcg,one-insn-per-tb=on"],
        };
        let cpu = overrides.cpu.as_ref().or(configuration.cpu.as_ref()).unwrap_or(&qemu.cpu);
        let memory = configuration.memory.as_ref().unwrap_or(&qemu.memory);
        let mut arguments: Vec<OsString> = Vec::new();
        for (option, value) in [("-machine", &machine), ("-cpu", cpu), ("-m", memory), ("-smp", &smp.to_string())] {
            arguments.extend([option.into(), value.into()]);
        }
        arguments.extend(interruption.iter().map(OsString::from));
        for argument in &qemu.arguments {
            arguments.push(match argument.split_once(disk::PLACEHOLDER) {
                Some((before, behind)) => around(before, &disk::path()?, behind),
                None => argument.into(),
            });
        }
        // A machine that resets has failed; booting it again would hide that.
        arguments.push(NO_REBOOT.into());
        Ok(arguments)
    }

    /// Returns the number of CPUs to run. An error says that the machine cannot have as many.
    fn wanted_cpus(&self, configuration: &Configuration, overrides: &Overrides) -> Result<u32> {
        let (smp, max) = (overrides.smp.unwrap_or(self.cpus(configuration)), self.qemu()?.max_smp);
        let has = match max {
            1 => "1 CPU".into(),
            _ => format!("1 to {max} CPUs"),
        };
        ensure!((1..=max).contains(&smp), "the board {} has {has}, not {smp}", self.name);
        Ok(smp)
    }
}

/// Returns an argument with a path in it.
fn around(before: &str, path: &Path, behind: &str) -> OsString {
    let mut argument = option_value(before, path);
    argument.push(behind);
    argument
}

/// The number of CPUs that a GICv2 has interfaces for (Arm IHI 0048, 1.4).
const GIC_V2_CPUS: u32 = 8;

/// The option that ends QEMU when the machine is reset.
const NO_REBOOT: &str = "-no-reboot";

/// Returns the arguments for a machine that boots again when it is reset.
pub fn with_reboot(mut arguments: Vec<OsString>) -> Vec<OsString> {
    arguments.retain(|argument| argument != NO_REBOOT);
    arguments
}

#[cfg(test)]
mod tests {
    use super::{Overrides, around};
    use crate::board::{Board, tests::TEXT};
    use std::path::Path;

    fn line(configuration: &str, overrides: &Overrides) -> String {
        let board = Board::parse("test", TEXT).unwrap();
        let configuration = board.configuration(configuration).unwrap();
        let arguments = board.arguments(configuration, overrides, Path::new("k.img")).unwrap();
        arguments.join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn configurations_and_overrides_become_arguments() {
        let base = "-machine virt -cpu max -m 512M -smp 1 -nic none -no-reboot -kernel k.img";
        assert_eq!(line("base", &Overrides::default()), base);
        let server = "-machine virt,gic-version=3,virtualization=on -cpu neoverse-n1 -m 512M -smp 2 -nic none -no-reboot -kernel k.img";
        assert_eq!(line("server", &Overrides::default()), server);
        let overrides = Overrides {
            smp: Some(4),
            machine: vec![("gic-version".into(), "2".into()), ("secure".into(), "off".into())],
            cpu: Some("cortex-a53".into()),
        };
        let changed = "-machine virt,gic-version=2,secure=off,virtualization=on -cpu cortex-a53 -m 512M -smp 4 -nic none -no-reboot -kernel k.img";
        assert_eq!(line("server", &overrides), changed);
    }

    #[test]
    fn the_disk_has_a_path() {
        let text = TEXT.replace("\"none\"", "\"none\", \"-drive\", \"file={disk},snapshot=on\"");
        let board = Board::parse("test", &text).unwrap();
        let arguments = board.machine_arguments(&board.configurations[0], &Overrides::default()).unwrap();
        let file = arguments
            .iter()
            .find_map(|argument| argument.to_str()?.strip_prefix("file=")?.strip_suffix(",snapshot=on"));
        assert!(Path::new(file.unwrap()).is_file(), "{arguments:?}");
        let argument = around("file=", Path::new("/a,b/disk.img"), ",snapshot=on");
        assert_eq!(argument, "file=/a,,b/disk.img,snapshot=on", "QEMU takes two commas for one");
    }

    #[test]
    fn a_machine_with_a_fixed_number_of_cpus_is_asked_to_run_fewer() {
        let text = TEXT.replace("[qemu]", "device-tree = \"bcm2837-rpi-3-b.dtb\"\n[qemu]\nfixed-smp = true");
        let board = Board::parse("test", &text).unwrap();
        let line = |smp| {
            let overrides = Overrides { smp: Some(smp), ..Overrides::default() };
            let arguments = board.arguments(&board.configurations[0], &overrides, Path::new("k.img")).unwrap();
            arguments.join(" ".as_ref()).into_string().unwrap()
        };
        assert!(line(8).contains(" -smp 8 ") && line(8).ends_with("/target/device-trees/bcm2837-rpi-3-b.dtb"));
        assert!(line(2).contains(" -smp 8 ") && line(2).ends_with(" -append maxcpus=2"));
    }

    #[test]
    fn more_cpus_than_the_machine_has_are_refused() {
        let board = Board::parse("test", TEXT).unwrap();
        let overrides = Overrides { smp: Some(9), ..Overrides::default() };
        let error = board.arguments(&board.configurations[0], &overrides, Path::new("k")).err().unwrap().to_string();
        assert_eq!(error, "the board test has 1 to 8 CPUs, not 9");
    }
}
