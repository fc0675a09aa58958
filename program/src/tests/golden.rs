//! The recorded console sessions show every error and every construct. Tests with a machine check that the console
//! replies as recorded; these tests check that nothing is missing, and that the recorded errors are current.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::machine::load;
use super::tried;
use crate::checked::TUPLE_DEPTH_MAX;
use kprobes_types::LineError;

use crate::error::{Described, Listed, Noun, Problem};
use crate::syntax::{Operator, PROGRAM_MAX, Parameters};

const ERRORS: &str = include_str!("../../../tests/console/program-errors.txt");
const PROGRAMS: &str = include_str!("../../../tests/console/programs.txt");
const REFERENCE: &str = include_str!("../../../docs/language.md");
const GUIDE: &str = include_str!("../../../docs/bpftrace-guide.md");
const TYPED_GUIDE: &str = include_str!("../../../tests/console/smp1/bpftrace-guide.txt");
const PROMPT: &str = "kprobes> ";

/// Lists one of each kind of problem. A missing kind does not compile.
macro_rules! each_problem {
    ($($problem:ident $({ $($field:ident: $value:expr),* })?,)*) => {{
        const fn _is_listed(problem: Problem) {
            match problem {
                $(Problem::$problem { .. } => {})*
            }
        }
        [$(Problem::$problem $({ $($field: $value),* })?),*]
    }};
}

aarch64_kprobes::event! {
    struct SchedSwitch = sched:sched_switch {
        prev_pid: i32,
    }
}

#[test]
#[cfg_attr(miri, ignore = "it searches a session for lines")]
fn every_error_is_shown() {
    let all = each_problem![
        Character,
        OpenComment,
        OpenText,
        Escape,
        LongText { most: 7 },
        Number,
        VariableName,
        LongProgram { most: PROGRAM_MAX },
        OutOfMemory,
        Empty,
        ProbeKind,
        Fraction,
        ProbeAddress,
        Meant { meant: "printf" },
        ProbeName,
        OpenBracket,
        Offset,
        GlobOffset,
        OneGlob,
        WatchForm,
        WatchRange,
        Interval,
        Profile,
        SoftwareEvent,
        HardwareEvent,
        HardwareCount,
        InlineWhere,
        Block,
        OpenBlock,
        Setting,
        SettingValue { wanted: "error, warn or ignore" },
        Address,
        Family,
        NotAStruct,
        ArrayLength,
        CastSize { has: 8, wants: 4 },
        FieldTwice,
        NoPart,
        EmptyTuple,
        StackMode,
        LateConfig,
        MapDeclaration,
        MacroHead,
        MacroTwice,
        FormalTwice,
        MapTwice,
        MacroMap,
        MacroVariable,
        MacroWithin,
        Expansions { most: 1000 },
        Expanded { most: 16384 },
        Expected { sign: ";" },
        Statement,
        Value,
        OpenPredicate,
        Deep,
        DeepTuple { most: TUPLE_DEPTH_MAX },
        NoTarget,
        Useless,
        Word,
        Function,
        Parentheses,
        Foreign { name: "ustack", why: "there is no user space; use kaddr, ksym, kstack" },
        ArgumentNumber,
        ArgumentAway,
        VariableAway,
        NoReturnValue,
        NoHit,
        Register,
        ProbeKinds,
        MixedTask,
        LoopRange,
        NoLoop,
        LoopAtHit,
        CollectedKeys,
        TimeFormat,
        ArgumentCount { least: 1, most: 2 },
        Type { wanted: Noun::Integer, found: Noun::Text },
        Types { left: Noun::Text, right: Noun::Integer },
        Formats,
        Order,
        NotAPointer,
        NotLiteral,
        NotConstant,
        Asserted,
        Failed,
        Clock,
        Range { least: 1, most: 100 },
        Unset,
        UnknownMap,
        NoKey,
        NotAMap,
        KeyParts { wanted: 2 },
        KeyType { wanted: Noun::Integer, found: Noun::Text },
        MapKind,
        NoNumber,
        AggregateAlone,
        NotAValue,
        Bounds { most: 1000 },
        Parameter { number: 1, wanted: "a number, as in --name=5" },
        UnknownParameter { number: 2 },
        ParameterDefault,
        PositionalParameter,
        ProbeParameter,
        SeriesFunction,
        Conversion,
        Conversions { conversions: 1, arguments: 0 },
        ConversionType { wanted: Noun::Text, found: Noun::Integer },
        FieldName,
        NoTypes,
        NoSignature,
        NoArgument { names: Listed::Names(&["state", "blocks"]) },
        InCopy,
        UnknownInCopy { address: 0x1000, why: kprobes_types::Unknown::OptimizedOut },
        NoLocal { names: Listed::Names(&["p", "blocks"]) },
        NoEventField { names: Listed::Names(&["comm", "pid", "prio"]) },
        NoEvent,
        NoEventBut { meant: Described(SchedSwitch::EVENT) },
        TracepointName,
        Differs,
        Unknown { why: kprobes_types::Unknown::OptimizedOut },
        Lost,
        KnownAtReturns,
        NothingReturned,
        NoField {
            of: "DecompressorOxide",
            names: Listed::Names(&[
                "state",
                "num_bits",
                "z_header0",
                "z_header1",
                "z_adler32",
                "finish",
                "block_type",
                "check_adler32",
                "counter"
            ])
        },
        FieldOfEnum { of: "Option<Action>" },
        NotANumber { of: "(TINFLStatus, State)" },
        NotShown { of: "Header" },
        NotAnEnum { of: "u32" },
        NoVariant {
            of: "TINFLStatus",
            names: Listed::Names(&[
                "FailedCannotMakeProgress",
                "BadParam",
                "Adler32Mismatch",
                "Failed",
                "Done",
                "NeedsMoreInput",
                "HasMoreOutput"
            ])
        },
        Path,
        DamagedTypes,
        NoSymbol,
        NoAddress,
        NoMatch,
        NoMatchBut { meant: "sha2::sha256::compress256" },
        NoInstruction,
        NoExit,
        NoInlined,
        UntoldInlined,
        InlinedMemory { bytes: 1 << 20 },
        InlinedDamaged,
        LineNumber,
        Line { why: LineError::NoFile },
        LongCode { most: 4096 },
        LongExpressions { most: 65536 },
        Room { most: 256 },
        ExitStatus,
        Many { most: 256 },
    ];
    // The parameters that the sentences quote.
    let words = ["--count=many".to_string(), "--cuont=5".to_string()];
    for problem in all {
        let line = format!("error: {}", Parameters { words: &words }.sentence(problem));
        let is_shown = ERRORS.lines().any(|shown| shown == line);
        // `LongProgram` needs a longer line than the console accepts, and `Many` needs hundreds of clauses. The other
        // problems need a damaged image, too little memory, or functions that each compiler version compiles
        // differently.
        let cannot_be_shown = matches!(
            problem,
            Problem::LongProgram { .. }
                | Problem::OutOfMemory
                | Problem::Many { .. }
                | Problem::InlinedMemory { .. }
                | Problem::InlinedDamaged
                | Problem::NoTypes
                | Problem::DamagedTypes
                | Problem::InCopy
                | Problem::UnknownInCopy { .. }
                | Problem::Lost
                | Problem::NotShown { .. }
        );
        assert!(is_shown != cannot_be_shown, "{line}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "its programs have thousands of bytes")]
fn errors_that_no_line_of_the_console_is_long_enough_for() {
    let refused = |program: &str| {
        let shown = load(program).unwrap_err().within(program).to_string();
        shown.lines().skip(1).collect::<Vec<_>>().join("\n").trim_start().to_string()
    };
    assert_eq!(refused(&" ".repeat(PROGRAM_MAX + 1)), "^\na program has at most 4096 bytes");
    assert_eq!(refused(&"BEGIN{}".repeat(257)), "^^^^^\nthere can be at most 256 of these");
}

/// Returns the lines that were typed, each with its reply.
fn exchanges(session: &str) -> impl Iterator<Item = (&str, String)> {
    let after_prompts = session.split(PROMPT).skip(1);
    after_prompts.filter_map(|text| text.split_once('\n')).map(|(typed, reply)| (typed, reply.to_string()))
}

#[test]
fn errors_are_shown_as_they_are() {
    let mut refused = 0;
    for (typed, reply) in tried(exchanges(ERRORS)) {
        let Some(program) = typed.strip_prefix("trace ").filter(|program| !program.contains("' -")) else { continue };
        let program = program.strip_prefix('\'').and_then(|quoted| quoted.strip_suffix('\'')).unwrap_or(program);
        let Err(error) = load(program) else {
            assert!(!reply.starts_with("error: bpftrace's"), "{typed} is not refused any more");
            continue;
        };
        // Problems with Rust values in the real image do not occur in the test image.
        if reply.contains("  Command: ")
            || matches!(error.problem, Problem::NoMatch | Problem::NoEvent)
            || program.contains("retval.")
        {
            continue;
        }
        let mark = error.span.mark(program).to_string();
        let shown: Vec<String> = mark.lines().map(|line| format!("  {line}\n")).collect();
        assert_eq!(reply, format!("error: {}\n{}", error.problem, shown.concat()), "{typed}");
        refused += 1;
    }
    assert!(cfg!(miri) || refused > 50, "{refused}");
}

/// Returns the words of `text`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
#[cfg_attr(miri, ignore = "it searches a page for words")]
fn every_construct_of_the_reference_is_shown() {
    let typed: String = exchanges(PROGRAMS).chain(exchanges(ERRORS)).map(|(typed, _)| format!("{typed}\n")).collect();
    let (_, tables) = REFERENCE.split_once("\n## Probes\n").unwrap();
    let (tables, _) = tables.split_once("\n## As instructions\n").unwrap();
    let mut count = 0;
    for cell in tables.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next()) {
        for span in format!("`{cell}").split('`').skip(1).step_by(2) {
            // An aggregation stands after a map and `=`.
            let name = words(span.split_once("= ").map_or(span, |(_, value)| value)).next().unwrap_or("");
            if ["x", "value", "target"].contains(&name) || name.is_empty() {
                continue;
            }
            assert!(words(&typed).any(|word| word == name), "{name} of {span} is not shown");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
    let conversions = REFERENCE.split_once("`%d ").and_then(|(_, rest)| rest.split_once('`')).unwrap().0;
    for conversion in conversions.split(' ') {
        assert!(typed.contains(conversion), "{conversion} is not shown");
    }
    for sign in "|| && | ^ & == != < <= > >= << >> + - * / %".split(' ') {
        assert!(typed.contains(&format!(" {sign} ")), "{sign} is not shown");
        if Operator::of_sign(sign).is_some_and(Operator::is_arithmetic) {
            assert!(typed.contains(&format!("$x {sign}= ")) && typed.contains(&format!("@x {sign}= ")), "{sign}=");
        }
    }
    for sign in [
        "$x++",
        "++$x",
        "$x--",
        "--$x",
        "@x++",
        "++@x",
        "@x--",
        "--@x",
        " ? ",
        "!5",
        "~0",
        "-7",
        "*(u64 *)",
        "$state[1]",
    ] {
        assert!(typed.contains(sign), "{sign} is not shown");
    }
    for reply in ["\n^C\n", "\nerror: ", "(..., -5)", "[5, ...)", " reads of memory failed", "[8M, 16M)"] {
        assert!(PROGRAMS.contains(reply) || ERRORS.contains(reply), "{reply}");
    }
}

/// Returns the cells of a row of a table; none for another line.
fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix('|'));
    // A `|` within a cell is written as `\\|`.
    let inner = inner.unwrap_or("").replace("\\|", "\u{1f}");
    inner.split('|').map(|cell| cell.trim().replace('\u{1f}', "|")).collect()
}

#[test]
#[cfg_attr(miri, ignore = "it searches two pages for headings")]
fn every_heading_of_the_guide_is_typed() {
    let (_, tables) = GUIDE.split_once("\n## Counts\n").unwrap();
    let typed = exchanges(TYPED_GUIDE).filter_map(|(typed, _)| typed.strip_prefix("# ").map(String::from));
    let mut typed = typed.skip(1);
    let mut all = [0; 4];
    let is_counted = |file: &str, counts: [usize; 4]| {
        let [yes, part, no, away] = counts;
        let (there, apply) = (yes + part, yes + part + no);
        // Percentages are rounded.
        let percent = (200 * there + apply) / (2 * apply);
        let row = format!("| {file} | {yes} | {part} | {no} | {there} of {apply}, {percent} % | {away} |");
        assert!(GUIDE.lines().any(|line| line == row), "{row}");
    };
    for file in tables.split("\n## ").skip(1) {
        let mut counts = [0; 4];
        for row in file.lines().map(cells) {
            let [heading, here, ..] = row.as_slice() else { continue };
            let Some(kind) = ["yes", "in part", "no", "does not apply"].iter().position(|kind| kind == here) else {
                continue;
            };
            counts[kind] += 1;
            all[kind] += 1;
            if kind < 3 {
                assert_eq!(typed.next().as_ref(), Some(heading), "the headings are typed in the order of the page");
            }
        }
        is_counted(file.lines().next().unwrap(), counts);
    }
    is_counted("all", all);
    assert_eq!(typed.next(), None);
}
