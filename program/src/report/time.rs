//! Formats times as `strftime` does. The kernel has no calendar: the start of the machine is shown as the start of
//! 1970.

use core::fmt::{self, Write};

const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Returns whether every conversion of `format` is known.
pub(crate) fn is_known(format: &str) -> bool {
    format.split("%%").all(|text| {
        text.split('%')
            .skip(1)
            .all(|rest| rest.starts_with(|c| "aAbBcCdDeFfgGHhIjklmMnpPrRsStTuUVwWxXyYzZ".contains(c)))
    })
}

/// Writes `nanoseconds` since the start of the machine by `format`. All its conversions must be [known](is_known).
pub(super) fn write(format: &str, nanoseconds: u64, out: &mut dyn Write) -> fmt::Result {
    let seconds = nanoseconds / 1_000_000_000;
    let (minutes, hours, days) = (seconds / 60 % 60, seconds / 3600 % 24, seconds / 86_400);
    let (mut year, mut day) = (1970, days);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = |year| 365 + u64::from(is_leap(year));
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let (mut month, mut date) = (0, day);
    let month_days = |month| match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    while date >= month_days(month) {
        date -= month_days(month);
        month += 1;
    }
    let (date, of_week) = (date + 1, (days % 7) as usize);
    let (day_name, month_name) = (DAYS.get(of_week).unwrap_or(&""), MONTHS.get(month as usize).unwrap_or(&""));
    // The days since the last Sunday and since the last Monday.
    let (sunday, monday) = ((days + 4) % 7, (days + 3) % 7);
    // By ISO 8601, a week begins on Monday and belongs to the year of its Thursday.
    let (week_year, thursday) = match (day + 3).checked_sub(monday) {
        None => (year - 1, day + 3 + length(year - 1) - monday),
        Some(thursday) if thursday >= length(year) => (year + 1, thursday - length(year)),
        Some(thursday) => (year, thursday),
    };
    let twelve = (hours + 11) % 12 + 1;
    let [capital, small] = if hours < 12 { ["AM", "am"] } else { ["PM", "pm"] };
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.write_char(c)?;
            continue;
        }
        match rest.next().unwrap_or('%') {
            'a' => write!(out, "{day_name:.3}"),
            'A' => out.write_str(day_name),
            'b' | 'h' => write!(out, "{month_name:.3}"),
            'B' => out.write_str(month_name),
            'c' => {
                write!(out, "{day_name:.3} {month_name:.3} {date:2} {hours:02}:{minutes:02}:{:02} {year}", seconds % 60)
            }
            'C' => write!(out, "{:02}", year / 100),
            'd' => write!(out, "{date:02}"),
            'D' | 'x' => write!(out, "{:02}/{date:02}/{:02}", month + 1, year % 100),
            'e' => write!(out, "{date:2}"),
            'F' => write!(out, "{year}-{:02}-{date:02}", month + 1),
            'f' => write!(out, "{:06}", nanoseconds / 1000 % 1_000_000),
            'g' => write!(out, "{:02}", week_year % 100),
            'G' => write!(out, "{week_year}"),
            'H' => write!(out, "{hours:02}"),
            'I' => write!(out, "{twelve:02}"),
            'j' => write!(out, "{:03}", day + 1),
            'k' => write!(out, "{hours:2}"),
            'l' => write!(out, "{twelve:2}"),
            'm' => write!(out, "{:02}", month + 1),
            'M' => write!(out, "{minutes:02}"),
            'n' => out.write_char('\n'),
            'p' => out.write_str(capital),
            'P' => out.write_str(small),
            'r' => write!(out, "{twelve:02}:{minutes:02}:{:02} {capital}", seconds % 60),
            'R' => write!(out, "{hours:02}:{minutes:02}"),
            's' => write!(out, "{seconds}"),
            'S' => write!(out, "{:02}", seconds % 60),
            't' => out.write_char('\t'),
            'T' | 'X' => write!(out, "{hours:02}:{minutes:02}:{:02}", seconds % 60),
            'u' => write!(out, "{}", monday + 1),
            'U' => write!(out, "{:02}", (day + 7 - sunday) / 7),
            'V' => write!(out, "{:02}", thursday / 7 + 1),
            'w' => write!(out, "{sunday}"),
            'W' => write!(out, "{:02}", (day + 7 - monday) / 7),
            'y' => write!(out, "{:02}", year % 100),
            'Y' => write!(out, "{year}"),
            'z' => out.write_str("+0000"),
            'Z' => out.write_str("UTC"),
            other => out.write_char(other),
        }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use super::*;

    fn shown(format: &str, seconds: u64) -> String {
        assert!(is_known(format), "{format}");
        let mut text = String::new();
        write(format, seconds * 1_000_000_000 + 12_345_678, &mut text).unwrap();
        text
    }

    #[test]
    fn times_are_those_of_a_calendar_that_starts_with_the_machine() {
        assert_eq!(shown("%H:%M:%S", 3_723), "01:02:03");
        assert_eq!(shown("%a %A %b %B %e %j %u %w", 0), "Thu Thursday Jan January  1 001 4 4");
        // The output of GNU date.
        assert_eq!(
            shown("%F %T %a %j %y %C %D %I %p %k %l %R %s", 951_827_696),
            "2000-02-29 12:34:56 Tue 060 00 20 02/29/00 12 PM 12 12 12:34 951827696"
        );
        assert_eq!(shown("%c|%x|%X|%z|%Z|%n|%t|%%|%f", 4_107_542_399), {
            "Sun Feb 28 23:59:59 2100|02/28/00|23:59:59|+0000|UTC|\n|\t|%|012345"
        });
        assert_eq!(shown("%F %T %a %j %u", 977_702_399), "2000-12-24 23:59:59 Sun 359 7");
        assert_eq!(shown("%F %u %w", 4_107_542_400), "2100-03-01 1 1");
        assert_eq!(shown("%r|%P", 0), "12:00:00 AM|am");
        assert_eq!(shown("%r|%P", 43_200 + 3_599), "12:59:59 PM|pm");
        assert!(!is_known("%Q") && !is_known("%") && is_known("%%Q"));
    }

    #[test]
    fn weeks_are_counted_from_sunday_from_monday_and_by_iso_8601() {
        // The output of Python's `strftime`.
        for (seconds, expected) in [
            (0, "1970-01-01 00 00 01 1970 70"),
            (259_200, "1970-01-04 01 00 01 1970 70"),
            (345_600, "1970-01-05 01 01 02 1970 70"),
            (31_449_600, "1970-12-31 52 52 53 1970 70"),
            (31_536_000, "1971-01-01 00 00 53 1970 70"),
            (94_608_000, "1972-12-31 53 52 52 1972 72"),
            (94_694_400, "1973-01-01 00 01 01 1973 73"),
            (220_838_400, "1976-12-31 52 52 53 1976 76"),
            (220_924_800, "1977-01-01 00 00 53 1976 76"),
            (221_011_200, "1977-01-02 01 00 53 1976 76"),
            (252_460_800, "1978-01-01 01 00 52 1977 77"),
            (315_446_400, "1979-12-31 52 53 01 1980 80"),
            (315_532_800, "1980-01-01 00 00 01 1980 80"),
            (473_299_200, "1984-12-31 53 53 01 1985 85"),
            (946_598_400, "1999-12-31 52 52 52 1999 99"),
            (946_684_800, "2000-01-01 00 00 52 1999 99"),
            (1_104_451_200, "2004-12-31 52 52 53 2004 04"),
            (1_104_537_600, "2005-01-01 00 00 53 2004 04"),
            (1_230_422_400, "2008-12-28 52 51 52 2008 08"),
            (1_230_508_800, "2008-12-29 52 52 01 2009 09"),
            (1_262_476_800, "2010-01-03 01 00 53 2009 09"),
            (1_609_372_800, "2020-12-31 52 52 53 2020 20"),
            (1_609_459_200, "2021-01-01 00 00 53 2020 20"),
            (1_735_603_200, "2024-12-31 52 53 01 2025 25"),
            (4_102_444_800, "2100-01-01 00 00 53 2099 99"),
            (4_133_894_400, "2100-12-31 52 52 52 2100 00"),
        ] {
            assert_eq!(shown("%F %U %W %V %G %g", seconds), expected);
        }
    }
}
