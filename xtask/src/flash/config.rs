//! The firmware's `config.txt` belongs to the user who set the card up. The settings for our kernel are in a section of
//! it, between two marker lines, by which the section is found again and replaced. It comes last, because the firmware
//! takes the last value of an option.

use anyhow::{Result, bail};

const BEGIN: &str = "# --- aarch64-kprobes: `cargo xtask flash` writes this section anew";
const END: &str = "# --- aarch64-kprobes: end";

/// Returns `config` with this section, in place of an earlier one.
pub fn with_section(config: &str, section: &str) -> Result<String> {
    let mut text = String::new();
    let mut is_inside = false;
    for line in config.split_inclusive('\n') {
        match line.trim_end() {
            BEGIN if !is_inside => is_inside = true,
            END if is_inside => is_inside = false,
            BEGIN | END => {
                bail!("config.txt has an unmatched marker of the section of aarch64-kprobes: repair it by hand")
            }
            _ if is_inside => {}
            _ => text.push_str(line),
        }
    }
    if is_inside {
        bail!("config.txt has the beginning of the section of aarch64-kprobes, but not its end: repair it by hand");
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    // The lines before may end with a condition. It must not apply to the section.
    text.push_str(&format!("{BEGIN}\n[all]\n{}\n{END}\n", section.trim_end()));
    Ok(text)
}

/// Whether the section is there.
pub fn has_section(config: &str) -> bool {
    config.lines().any(|line| line.trim_end() == BEGIN)
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, has_section, with_section};

    #[test]
    fn the_section_is_replaced_and_the_rest_stays() {
        let before = "dtparam=audio=on\r\n[pi4]\r\narm_boost=1";
        let once = with_section(before, "kernel=a\n").unwrap();
        assert_eq!(once, format!("{before}\n{BEGIN}\n[all]\nkernel=a\n{END}\n"));
        assert!(has_section(&once) && !has_section(before));
        assert_eq!(with_section(&once, "kernel=a\n").unwrap(), once);
        // Lines that were added after the section are moved before it, so that the section keeps the last word.
        let added = format!("{once}arm_freq=600\n");
        let expected = format!("{before}\narm_freq=600\n{BEGIN}\n[all]\nkernel=b\n{END}\n");
        assert_eq!(with_section(&added, "kernel=b").unwrap(), expected);
        // An editor may have changed the line ends.
        assert_eq!(with_section(&added.replace('\n', "\r\n"), "kernel=b").unwrap().matches(BEGIN).count(), 1);
    }

    #[test]
    fn half_a_section_is_left_to_its_owner() {
        for half in [format!("a=1\n{BEGIN}\nb=2\n"), format!("{END}\n"), format!("{BEGIN}\n{BEGIN}\n{END}\n")] {
            assert!(with_section(&half, "c=3").unwrap_err().to_string().contains("repair it by hand"), "{half}");
        }
    }
}
