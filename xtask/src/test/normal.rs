//! Puts lines into a normal form. A session is written down once and must hold for every build and every run. So the
//! parts that depend on the build or the run are replaced on both sides before they are compared, and nothing else is:
//!
//! | part | becomes |
//! |---|---|
//! | an address of the image, 16 hexadecimal digits from `ffffff` on, `0x` or not | `ADDRESS` |
//! | the size of a function, after `+0xOFFSET/`, after the address of a row of `symbols`, in `has 0x… bytes` | `SIZE` |
//! | the offset before it, of a return address: in a backtrace, before ` <- ` in a trace, in a histogram of stacks, in a stack that is a field, and in a row of `stack_trace`; in a stack that a program prints; and of an inlined copy in its function | `OFFSET` |
//! | the number of functions, in `N of … functions` | `COUNT` |
//! | the number of KiB, in the last line of `list`: memory that was used before is kept | `N` |
//! | a number of milliseconds, a time in a trace or in a log of errors | `TIME` |
//! | in a trace, or as `common_pid` in a histogram, the number of a task, of a worker such as `sha256/2`, and of a CPU: the scheduler decides when and where tasks run | `N` |
//! | the CPU, the duration and its mark, in a line of the tracer `function_graph` | `N`, `DURATION` |
//! | the numbers of the tasks, where that says that a CPU has switched | `N` |
//! | the times and the variance, in a row of `trace_stat/functionN` | `TIME` |
//! | the function, in `functions cannot be probed: `why …` for the first`: the linker decides which is first | `FUNCTION` |
//! | the register, in `… is live there: it is read at …`: the compiler decides which one other code reads | `REGISTER` |
//! | the number of CPUs, in `CPUs: … of … run` if all run, and after `#P:` in a trace | `N` |

/// The start of a stack's lines in a histogram.
const STACK_INDENT: &str = "         ";

/// The start of the lines of a stack that is a field of a synthetic event.
const FIELD_OF_STACK: &str = "=> ";

/// The start of the lines of a stack that a program prints.
const PROGRAM_INDENT: &str = "    ";

/// The end of the reason for which a probe is not compiled.
const LIVE: &str = " is live there: it is read at ADDRESS";

/// Returns the normal form of a line.
pub fn normal(line: &str) -> String {
    let mut line = addresses(line.trim_end());
    let is_frame = line.trim_start().starts_with('#') && line.contains(" ADDRESS ")
        || line.starts_with(STACK_INDENT) && trace_record(&line).is_none()
        || line.starts_with(FIELD_OF_STACK)
        || is_depth(&line);
    sizes(&mut line, is_frame);
    if let Some((count, rest)) = line.strip_prefix("ADDRESS ").and_then(|row| row.trim_start().split_once("  "))
        && is_number(count)
    {
        line = format!("ADDRESS SIZE  {rest}");
    }
    if let Some((before, place)) = line.rsplit_once("+0x")
        && line.starts_with("inline:")
    {
        line = format!("{before}+OFFSET{}", place.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    if let Some((some, all)) = line.strip_suffix(" functions").and_then(|counts| counts.split_once(" of "))
        && is_number(some)
        && is_number(all)
    {
        line = format!("{some} of COUNT functions");
    }
    if let Some((before, _)) =
        line.strip_suffix("` for the first").and_then(|line| line.split_once(" functions cannot be probed: `why "))
        && before.rsplit(' ').next().is_some_and(|count| is_number(count) || count.starts_with("${"))
    {
        line = format!("{before} functions cannot be probed: `why FUNCTION` for the first");
    }
    if let Some((before, register)) = line.strip_suffix(LIVE).and_then(|line| line.rsplit_once(" x"))
        && is_number(register)
    {
        line = format!("{before} REGISTER{LIVE}");
    }
    if let Some(record) = trace_record(&line) {
        line = record;
    }
    if let Some(record) = graph_record(&line).or_else(|| profile_row(&line)) {
        line = record;
    }
    if let Some(rest) = line.strip_prefix('[').and_then(|line| logged(line.trim_start())) {
        line = format!("[TIME] {rest}");
    }
    if let Some(entry) = of_task(&line) {
        line = entry;
    }
    if let Some((running, all)) =
        line.strip_prefix("CPUs: ").and_then(|counts| counts.strip_suffix(" run")?.split_once(" of "))
        && is_number(running)
        && running == all
    {
        line = "CPUs: N of N run".into();
    }
    if let Some((before, cpus)) = line.split_once("#P:")
        && line.starts_with("# entries-in-buffer")
        && is_number(cpus)
    {
        line = format!("{before}#P:N");
    }
    if line.starts_with("memory: ") {
        line = kibibytes(&line);
    }
    if let Some((function, offset)) = line.rsplit_once('+')
        && line.starts_with(PROGRAM_INDENT)
        && is_number(offset)
    {
        line = format!("{function}+OFFSET");
    }
    milliseconds(&line)
}

fn kibibytes(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    for index in 1..words.len() {
        if words[index].trim_end_matches(',') == "KiB" && is_number(words[index - 1]) {
            words[index - 1] = "N";
        }
    }
    words.join(" ")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Replaces every word that is an address of the image.
fn addresses(line: &str) -> String {
    let mut normal = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|character: char| character.is_ascii_alphanumeric()) {
        let word = rest[start..].split(|character: char| !character.is_ascii_alphanumeric()).next().unwrap_or_default();
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let is_address = digits.len() == 16
            && digits.starts_with("ffffff")
            && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        normal += &rest[..start];
        normal += if is_address { "ADDRESS" } else { word };
        rest = &rest[start + word.len()..];
    }
    normal + rest
}

/// Returns the length of the number at the start of `text`, with `0x`. 0 if there is none.
fn hexadecimal(text: &str) -> usize {
    match text.strip_prefix("0x") {
        Some(digits) => 2 + digits.bytes().take_while(u8::is_ascii_hexdigit).count(),
        None => 0,
    }
}

/// Returns whether this is a row of `stack_trace`, ` N) DEPTH SIZE FUNCTION`.
fn is_depth(line: &str) -> bool {
    let Some((number, rest)) = line.split_once(')') else { return false };
    let words = rest.split_whitespace();
    is_number(number.trim_start()) && words.take(2).filter(|word| is_number(word)).count() == 2
}

/// Replaces sizes of functions, and the offsets of return addresses.
fn sizes(line: &mut String, is_frame: bool) {
    let mut from = 0;
    while let Some(found) = line[from..].find("+0x") {
        let offset = from + found + 1;
        let slash = offset + hexadecimal(&line[offset..]);
        let size = slash + 1;
        from = slash;
        if line[slash..].starts_with("/0x") {
            let end = size + hexadecimal(&line[size..]);
            let is_return = is_frame || line[end..].starts_with(" <- ");
            line.replace_range(size..end, "SIZE");
            if is_return {
                line.replace_range(offset..slash, "OFFSET");
            }
        }
    }
    if let Some((before, after)) = line.split_once("which has 0x").filter(|(_, after)| after.ends_with(" bytes")) {
        let digits = after.len() - after.trim_start_matches(|character: char| character.is_ascii_hexdigit()).len();
        *line = format!("{before}which has SIZE{}", &after[digits..]);
    }
}

/// Returns the error in `TIME] ERROR`.
fn logged(line: &str) -> Option<&str> {
    let (time, error) = line.split_once("] ")?;
    let (seconds, fraction) = time.split_once('.')?;
    (is_number(seconds) && is_number(fraction)).then_some(error)
}

/// Normalizes an entry of a histogram by tasks, `… common_pid: TASK   [ NUMBER]…`. `None` if the line is not one.
fn of_task(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("common_pid: ")?;
    let (task, rest) = rest.split_once('[')?;
    let (number, after) = rest.split_once(']')?;
    is_number(number.trim()).then(|| format!("{before}common_pid: {} [N]{after}", worker(task.trim())))
}

/// Returns the name of a task, without the number of a worker.
fn worker(name: &str) -> String {
    match name.split_once('/') {
        Some((workload, worker)) if is_number(worker) => format!("{workload}/N"),
        _ => name.to_string(),
    }
}

/// Normalizes a record of a trace, `   TASK-NUMBER   [CPU] FLAGS  TIME: EVENT…`. `None` if the line is not one.
fn trace_record(line: &str) -> Option<String> {
    let (task, rest) = line.split_once(" [")?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (name, number) = task.trim().rsplit_once('-')?;
    let (flags, rest) = rest.split_once(' ')?;
    let (time, event) = rest.trim_start().split_once(": ")?;
    let (seconds, fraction) = time.split_once('.')?;
    if ![number, cpu, seconds, fraction].into_iter().all(is_number) {
        return None;
    }
    let name = worker(name);
    Some(format!("{name}-N [N] {flags} TIME: {event}"))
}

/// Normalizes a line of the tracer `function_graph`, ` CPU) DURATION |  CALL` or ` CPU) TASK => TASK`. `None` if the
/// line is not one.
fn graph_record(line: &str) -> Option<String> {
    let (cpu, rest) = line.strip_prefix(' ')?.split_once(") ")?;
    if !is_number(cpu.trim_start()) {
        return None;
    }
    if let Some((before, after)) = rest.split_once(" => ") {
        let names = [before, after].map(|task| task.trim().rsplit_once('-').map(|(name, _)| name));
        let [Some(before), Some(after)] = names else { return None };
        return Some(format!(" N) {before}-N => {after}-N"));
    }
    let (duration, call) = rest.split_once('|')?;
    let column = match duration.trim() {
        "" => "",
        arrow if arrow.ends_with(['>', '=']) => arrow,
        _ => duration.trim_end().ends_with(" us").then_some("DURATION")?,
    };
    Some(format!(" N) {column}|{call}"))
}

/// Normalizes a row of `trace_stat/functionN`, `  NAME HITS TIME us TIME us VARIANCE us`. `None` if the line is not
/// one.
fn profile_row(line: &str) -> Option<String> {
    let mut rest = line.strip_suffix(" us")?;
    for _ in 0..2 {
        rest = rest
            .trim_end_matches(|digit: char| digit.is_ascii_digit() || digit == '.')
            .trim_end()
            .strip_suffix(" us")?;
    }
    let (before, _) = rest.rsplit_once(' ')?;
    let before = before.trim_end();
    is_number(before.rsplit(' ').next()?).then(|| format!("{before} TIME us TIME us TIME us"))
}

/// Replaces numbers of milliseconds, with the space that aligns them.
fn milliseconds(line: &str) -> String {
    let Some((before, after)) = line.split_once(" ms").filter(|(_, after)| after.is_empty() || after.starts_with(' '))
    else {
        return line.to_string();
    };
    let rest = before.trim_end_matches(|character: char| character.is_ascii_digit() || character == '.');
    if rest.len() == before.len() || !rest.ends_with(' ') {
        return line.to_string();
    }
    format!("{} TIME ms{after}", rest.trim_end())
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn what_differs_is_replaced() {
        for (line, expected) in [
            ("ffffffc000025044   8272  sha2::f", "ADDRESS SIZE  sha2::f"),
            ("7 of 624 functions", "7 of COUNT functions"),
            (
                "2 probes; 19 functions cannot be probed: `why <a as b>::c` for the first",
                "2 probes; 19 functions cannot be probed: `why FUNCTION` for the first",
            ),
            (
                "${all} probes; ${refused} functions cannot be probed: `why <a as b>::c` for the first",
                "${all} probes; ${refused} functions cannot be probed: `why FUNCTION` for the first",
            ),
            (
                "  not compiled, because x14 is live there: it is read at 0xffffffc00006c0bc",
                "  not compiled, because REGISTER is live there: it is read at ADDRESS",
            ),
            ("CPUs: 4 of 4 run", "CPUs: N of N run"),
            ("# entries-in-buffer/entries-written: 4/4   #P:1", "# entries-in-buffer/entries-written: 4/4   #P:N"),
            (
                "ffffffc000025044  k     stepped    enabled   200         1           a                 f+0x4/0x2050",
                "ADDRESS  k     stepped    enabled   200         1           a                 f+0x4/SIZE",
            ),
            (
                "       deflate/1-9       [000] .....     0.193456: e: (a::b+0x13d4/0x1b54 <- c::d) sum=0x1f4ad87",
                "deflate/N-N [N] ..... TIME: e: (a::b+OFFSET/SIZE <- c::d) sum=0x1f4ad87",
            ),
            ("  main-3 [000] .....  0.1: e: (a+0x0/0x20) n=15", "main-N [N] ..... TIME: e: (a+0x0/SIZE) n=15"),
            ("sha256: 100 in 4 tasks: 99 right, 1 wrong, 8 ms", "sha256: 100 in 4 tasks: 99 right, 1 wrong, TIME ms"),
            ("       1    0  ready         20.623 ms  idle", "       1    0  ready TIME ms  idle"),
            ("  #1 0xffffffc000011fac <a as b>::c+0x290/0x408  ", "  #1 ADDRESS <a as b>::c+OFFSET/SIZE"),
            ("error: 0xffffffc000002b20 runs", "error: ADDRESS runs"),
            ("the function, which has 0x2050 bytes", "the function, which has SIZE bytes"),
            ("[    0.595480] trace_kprobe: error: no", "[TIME] trace_kprobe: error: no"),
            ("         <a as b>::c+0x290/0x408", "         <a as b>::c+OFFSET/SIZE"),
            ("=> <a as b>::c+0x290/0x408", "=> <a as b>::c+OFFSET/SIZE"),
            ("  1)      528     304   a::b+0x68/0x260", "  1)      528     304   a::b+OFFSET/SIZE"),
            ("    <a as b>::c+104", "    <a as b>::c+OFFSET"),
            ("kprobe:a+104", "kprobe:a+104"),
            ("inline:<a as b>::c:entry in d::e+0x3b0, in pieces", "inline:<a as b>::c:entry in d::e+OFFSET, in pieces"),
            (
                "{ n: ~ 2^4 , common_pid: sha256/0        [         6] } hitcount:          1",
                "{ n: ~ 2^4 , common_pid: sha256/N [N] } hitcount:          1",
            ),
            (" 0) ! 102.352 us  |      sha2::f();", " N) DURATION|      sha2::f();"),
            (" 11)               |  a() {", " N) |  a() {"),
            (" 0)   ==========> |", " N) ==========>|"),
            (" 3)     idle-1     =>     main-3    ", " N) idle-N => main-N"),
            (
                "  sha2::f                      4    36.604 us       9.151 us        143.281 us  ",
                "  sha2::f                      4 TIME us TIME us TIME us",
            ),
        ] {
            assert_eq!(normal(line), expected);
        }
    }

    #[test]
    fn nothing_else_is() {
        for line in [
            "",
            "      200 calls of sha2::sha256::compress256",
            "0000000000001000 and 0x123456789abcdef0 and ffffffc00002504 and ffffffc0000250441",
            "  Command: p:a sha2::sha256::compress256+0x100000",
            "a list [of] things: 4",
            "name-x [000] ..... 0.1: e: y",
            "atoms 3 msx",
            "some of 624 functions",
            "2 probes; 1 function cannot be probed: `why a::b`",
            "1 probe; 3 instructions of the probed functions cannot be probed: `why a::b+4` for the first",
            "CPUs: 3 of 4 run",
            " a) | b",
            " 1) some | b",
            " 1) 528 a+0x8 30",
            "it took 4 us",
            "ms",
            "+0x",
            "é+0x1/ [é] -é",
        ] {
            assert_eq!(normal(line), line);
        }
    }
}
