//! The programs that count on the target. They print one group of objects each interval: a head, maps, and an end.
//! The target sorts, so that the line carries the first rows alone.

/// The number of rows that the target prints of each map.
pub const ROWS: usize = 60;
/// The number of keys that each map has room for: more than a kernel has functions to probe.
pub const KEYS: u64 = 4096;
/// The most functions with new hits in an interval. The others are left to the next one. A turn of the loop has at most
/// 20 operations with new hits and 7 without, and all turns have at most 65,536.
const HIT_FUNCTIONS: usize = 2000;

/// What to count, and how.
pub struct Plan {
    /// The globs of functions.
    pub globs: Vec<String>,
    /// Whether calls are timed.
    pub is_timed: bool,
    /// The interval in milliseconds.
    pub interval: u64,
}

impl Plan {
    /// Returns the program that counts the calls of all functions.
    ///
    /// `@h` is never cleared: a `clear` after a `print` would drop the hits in between, and the slower the line, the
    /// more. The interval clause computes the difference to the last interval instead, into `@d`. In its key are the
    /// function's totals, so that a row has all numbers of a function and the target sorts the rows by the hits.
    ///
    /// `@busy` is cleared once all else was printed. Until then intervals are skipped, and what they would have shown
    /// is part of the next one. So a slow line gets fewer intervals, and `@d` is never cleared before it was printed.
    /// The last interval ends with the program.
    pub fn overview(&self) -> String {
        let (entries, interval) = (self.probes("kprobe"), self.interval);
        let (started, returns, times) = match self.is_timed {
            true => (
                " @s[func, reg(\"sp\")] = nsecs;",
                format!(
                    "{} {{ $s = @s[func, reg(\"sp\")]; if ($s) {{ @r[func] = count(); @t[func] = sum(nsecs - $s); }} \
                     delete(@s[func, reg(\"sp\")]); }} ",
                    self.probes("kretprobe")
                ),
                ", @r[$k.0], @t[$k.0]",
            ),
            false => ("", String::new(), ""),
        };
        format!(
            "config = {{ print_maps_on_exit = false }} \
             {entries} {{ @h[func] = count(); @w[cpu, tid] = count();{started} }} {returns}\
             tracepoint:sched:sched_switch {{ @n[args.prev_pid] = args.prev_comm; }} \
             interval:ms:{interval}, END {{ if (@busy) {{ return; }} @busy = 1; $sum = (uint64)0; $hit = 0; \
             for ($k : @h) {{ $d = $k.1 - @l[$k.0]; \
             if ($d) {{ @d[$k.0, $k.1{times}] = $d; @l[$k.0] = $k.1; $sum += $d; $hit++; }} if ($hit == {HIT_FUNCTIONS}) {{ break; }} }} \
             printf(\"%d %d %d\\n\", elapsed, $sum, $hit); print(@d, {ROWS}); clear(@d); \
             print(@w, {ROWS}); print(@n); clear(@n); printf(\"end\\n\"); clear(@busy); }}"
        )
    }

    /// Returns the program that counts the callers of one function, and times it.
    pub fn detail(&self, function: &str) -> String {
        let interval = self.interval;
        // In a probe, the `*` of a pointer's type stands for other characters, too. `kaddr` takes the name as it is.
        let only = match function.contains(['*', '?']) {
            true => format!("/func == kaddr(\"{function}\")/ "),
            false => String::new(),
        };
        format!(
            "config = {{ print_maps_on_exit = false }} \
             kprobe:\"{function}\" {only}{{ @c[caller] = count(); @s[reg(\"sp\")] = nsecs; }} \
             kretprobe:\"{function}\" {only}{{ $s = @s[reg(\"sp\")]; if ($s) {{ @t = hist(nsecs - $s, 1); }} \
             delete(@s[reg(\"sp\")]); }} \
             interval:ms:{interval}, END {{ if (@busy) {{ return; }} @busy = 1; printf(\"%d 0 0\\n\", elapsed); \
             print(@c, {ROWS}); print(@t); printf(\"end\\n\"); clear(@busy); }}"
        )
    }

    fn probes(&self, kind: &str) -> String {
        let probes: Vec<String> = self.globs.iter().map(|glob| format!("{kind}:\"{glob}\"")).collect();
        probes.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;

    #[test]
    fn a_name_with_a_star_means_one_function() {
        let plan = Plan { globs: Vec::new(), is_timed: false, interval: 1000 };
        let program = plan.detail("<*mut T as A>::f");
        let guarded = "probe:\"<*mut T as A>::f\" /func == kaddr(\"<*mut T as A>::f\")/ {";
        assert_eq!(program.matches(guarded).count(), 2, "{program}");
        assert!(!plan.detail("<T as A>::f").contains("kaddr"));
    }
}
