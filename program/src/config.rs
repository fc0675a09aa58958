//! The settings at the top of a program: `config = { max_map_keys = 100; print_maps_on_exit = false }`.
//!
//! The names are bpftrace's; the names of its environment variables, such as `BPFTRACE_MAX_MAP_KEYS`, are accepted,
//! too. Settings about user space and about BPF are ignored, so that a program of bpftrace runs unchanged.

use kprobes_vm::ir::Type;
use kprobes_vm::maps::KEYS_MAX;

use crate::error::{Error, Problem};
use crate::syntax::{Setting, SettingValue, Spanned};

/// The maximum length of a string value, in bytes.
pub(crate) const TEXT_MAX: usize = 127;

/// The settings of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of keys that each map has room for; `None` for the default.
    pub keys: Option<usize>,
    /// The room for the output of each CPU, in pages of 4 KiB; `None` for the default.
    pub output_pages: Option<usize>,
    /// The maximum number of probes; `None` if there is none.
    pub probes: Option<usize>,
    /// The length of a string that is read without a length, in bytes.
    pub text_length: u8,
    /// The treatment of a probe that reaches nothing.
    pub missing: Missing,
    /// Whether the maps are shown at the end.
    pub shows_maps: bool,
    /// How stacks are shown that have no mode of their own.
    pub stack_mode: StackMode,
    /// Whether the file and the line follow each function of a stack.
    pub stack_lines: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            keys: None,
            output_pages: None,
            probes: None,
            text_length: 63,
            missing: Missing::Error,
            shows_maps: true,
            stack_mode: StackMode::Function,
            stack_lines: false,
        }
    }
}

/// The treatment of a probe that reaches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The program is refused.
    Error,
    /// A line of output reports the probe.
    Warning,
    /// The probe is left out without a report.
    Ignored,
}

/// What each line of a stack shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMode {
    /// The function and the offset: `main+16`.
    Function,
    /// The address, the function and the offset.
    Both,
    /// The address.
    Address,
}

impl Missing {
    /// Returns the name of the value.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warn",
            Self::Ignored => "ignore",
        }
    }
}

impl StackMode {
    const ALL: [Self; 3] = [Self::Function, Self::Both, Self::Address];

    /// Returns the type of stacks that are shown in this mode.
    #[must_use]
    pub fn stack(self) -> Type {
        Type::Stack { mode: self as u8 }
    }

    /// Returns the mode of the type [`stack`](Self::stack) with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| *mode as u8 == number)
    }

    /// Returns bpftrace's name of the mode.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "bpftrace",
            Self::Both => "perf",
            Self::Address => "raw",
        }
    }

    /// Returns the mode that bpftrace calls `name`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The maximum number of pages for the output of each CPU.
const PAGES_MAX: usize = 4096;

/// Settings that are accepted and ignored.
const TAKEN: [&str; 8] = [
    "cache_user_symbols",
    "cpp_demangle",
    "lazy_symbolication",
    "license",
    "log_size",
    "max_bpf_progs",
    "max_cat_bytes",
    "on_stack_limit",
];

impl Config {
    /// Reads the settings of a program.
    ///
    /// # Errors
    ///
    /// A name is unknown, or a value does not fit.
    pub(crate) fn read(settings: &[Spanned<Setting>]) -> Result<Self, Error> {
        let mut config = Self::default();
        settings.iter().try_for_each(|setting| config.set(setting)).map(|()| config)
    }

    fn set(&mut self, setting: &Spanned<Setting>) -> Result<(), Error> {
        let Setting { name, value } = &setting.node;
        let wanted = |wanted| setting.span.error(Problem::SettingValue { wanted });
        let is = |known: &str| {
            let plain = name.strip_prefix("BPFTRACE_").unwrap_or(name);
            plain.eq_ignore_ascii_case(known)
        };
        let number = |least: usize, most: usize| {
            let range = Problem::Range { least: least as u64, most: most as u64 };
            match value {
                SettingValue::Number(number) if (least as u64..=most as u64).contains(number) => Ok(*number as usize),
                _ => Err(setting.span.error(range)),
            }
        };
        let switch = || match value {
            SettingValue::Number(0) => Ok(false),
            SettingValue::Number(1) => Ok(true),
            SettingValue::Text(word) if word == "false" || word == "off" => Ok(false),
            SettingValue::Text(word) if word == "true" || word == "on" => Ok(true),
            _ => Err(wanted("true or false")),
        };
        let word = match value {
            SettingValue::Text(word) => word.as_str(),
            SettingValue::Number(_) => "",
        };
        match () {
            () if is("max_map_keys") => self.keys = Some(number(1, KEYS_MAX)?),
            () if is("max_probes") => self.probes = Some(number(1, u32::MAX as usize)?),
            () if is("max_strlen") => self.text_length = number(1, TEXT_MAX)? as u8,
            () if is("missing_probes") => {
                self.missing = match word {
                    "error" => Missing::Error,
                    "warn" => Missing::Warning,
                    "ignore" => Missing::Ignored,
                    _ => return Err(wanted("error, warn or ignore")),
                }
            }
            () if is("print_maps_on_exit") => self.shows_maps = switch()?,
            () if is("show_debug_info") => self.stack_lines = switch()?,
            () if is("stack_mode") => {
                self.stack_mode = StackMode::of_name(word).ok_or(wanted("bpftrace, perf or raw"))?;
            }
            () if is("str_trunc_trailer") && *value == SettingValue::Text("".into()) => {}
            () if is("str_trunc_trailer") => return Err(wanted("\"\", because strings are cut without a trailer")),
            () if is("perf_rb_pages") => self.output_pages = Some(number(1, PAGES_MAX)?),
            () if TAKEN.iter().any(|name| is(name)) || name.starts_with("unstable_") => {}
            () => return Err(setting.span.error(Problem::Setting)),
        }
        Ok(())
    }
}
