//! Installs QEMU on Debian and Ubuntu. `raspi4b` came with QEMU 9.0, which Debian 12 has only in its backports.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, bail};

use super::{SetupStep, is_root, output_of};

const PACKAGE: &str = "qemu-system-arm";
/// The first version with all machines.
const WANTED: u32 = 9;
/// The release whose own QEMU is older, and whose backports have a newer one.
const BACKPORTED: &str = "bookworm";
const BACKPORTS_FILE: &str = "/etc/apt/sources.list.d/bookworm-backports.sources";
/// The keys of Debian's archive.
pub const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Installs a QEMU with these machines, or prints the commands to type.
pub fn install_qemu(machines: &[&str]) -> Result<()> {
    let system = System::parse(&fs::read_to_string("/etc/os-release").unwrap_or_default());
    let mut candidate = candidate()?;
    if candidate.is_none() && is_root()? {
        // The lists of a fresh container are empty.
        update().take()?;
        candidate = self::candidate()?;
    }
    take_as_root(&plan(&system, candidate, machines, &targets()?)?, PACKAGE)
}

/// Executes the steps that install `what`, or prints the commands to type.
fn take_as_root(steps: &[SetupStep], what: &str) -> Result<()> {
    if is_root()? {
        return steps.iter().try_for_each(SetupStep::take);
    }
    let lines: Vec<_> = steps.iter().map(|step| format!("    {}", step.shell())).collect();
    bail!("only root can install {what}; type\n{}", lines.join("\n"));
}

/// Installs these packages, or prints the commands to type.
pub fn install_packages(packages: &[&str]) -> Result<()> {
    take_as_root(&[update(), install(packages)], &packages.join(" "))
}

/// Returns the Debian mirror of this system's own packages, and their release. `None` on other systems, or if apt has
/// no such source.
pub fn mirror() -> Result<Option<(String, String)>> {
    let System { id, codename, .. } = System::parse(&fs::read_to_string("/etc/os-release").unwrap_or_default());
    let mirror = if id == "debian" { uri(&targets()?, &codename).map(String::from) } else { None };
    Ok(mirror.map(|mirror| (mirror, codename)))
}

/// Returns apt's configured sources: lines of release, component and URI.
fn targets() -> Result<String> {
    output_of(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(RELEASE) $(COMPONENT) $(REPO_URI)",
        "Created-By: Packages",
    ]))
}

/// Returns the steps to a QEMU with these machines, on a system whose sources offer the major version `candidate`.
fn plan(system: &System, candidate: Option<u32>, machines: &[&str], targets: &str) -> Result<Vec<SetupStep>> {
    let new_enough = candidate.is_none_or(|version| version >= WANTED);
    if system.codename == BACKPORTED && candidate.is_none_or(|version| version < WANTED) {
        let backports = format!("{BACKPORTED}-backports");
        let mut steps = Vec::new();
        if uri(targets, &backports).is_none() {
            let Some(mirror) = uri(targets, BACKPORTED) else {
                bail!("apt has no source for {BACKPORTED}: configure one; its mirror is then used for {backports} too");
            };
            let source =
                format!("Types: deb\nURIs: {mirror}\nSuites: {backports}\nComponents: main\nSigned-By: {KEYRING}\n");
            steps.push(SetupStep::write(Path::new(BACKPORTS_FILE), source));
        }
        steps.extend([update(), install(&["-t", &backports, PACKAGE])]);
        Ok(steps)
    } else if new_enough || machines == ["virt"] {
        Ok(vec![update(), install(&[PACKAGE])])
    } else {
        bail!(
            "{} offers QEMU {} and the machines {} need {WANTED}.0: install a newer release, or QEMU from its source",
            system.name,
            candidate.unwrap_or_default(),
            machines.join(", ")
        )
    }
}

fn update() -> SetupStep {
    SetupStep::run(&["apt-get", "update"])
}

/// Returns the step that installs packages. Options may come before their names.
fn install(packages: &[&str]) -> SetupStep {
    let words = ["apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"];
    SetupStep::run(&[&words, packages].concat())
}

/// Returns the major version that `apt-get install` would install.
fn candidate() -> Result<Option<u32>> {
    let mut policy = Command::new("apt-cache");
    policy.args(["policy", PACKAGE]).env("LC_ALL", "C").stderr(Stdio::null());
    Ok(major_version(&output_of(&mut policy)?))
}

/// Returns the major version of the candidate in the output of `apt-cache policy`.
fn major_version(policy: &str) -> Option<u32> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    let version = version.split_once(':').map_or(version, |(_epoch, version)| version);
    version.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the URI of the main component of `release`, from lines of release, component and URI.
fn uri<'a>(targets: &'a str, release: &str) -> Option<&'a str> {
    targets.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let found = words.next() == Some(release) && words.next() == Some("main");
        words.next().filter(|_| found)
    })
}

/// The operating system.
#[derive(Default)]
struct System {
    id: String,
    name: String,
    codename: String,
}

impl System {
    /// Parses os-release(5).
    fn parse(text: &str) -> Self {
        let value = |key| {
            let assignment = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            assignment.unwrap_or_default().trim_matches(['"', '\'']).to_string()
        };
        Self { id: value("ID"), name: value("PRETTY_NAME"), codename: value("VERSION_CODENAME") }
    }
}

#[cfg(test)]
mod tests {
    use super::{SetupStep, System, major_version, plan, uri};

    const DEBIAN: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\nID=debian\n";
    const UBUNTU: &str = "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nVERSION_CODENAME=noble\nID=ubuntu\n";
    const TARGETS: &str = "bookworm-updates main http://m.example/debian/\nbookworm contrib http://c.example/\n\
        bookworm main http://m.example/debian/\nbookworm-security main http://s.example/debian-security/\n";
    const ALL: [&str; 2] = ["virt", "raspi4b"];

    fn shell(steps: Vec<SetupStep>) -> Vec<String> {
        steps.iter().map(SetupStep::shell).collect()
    }

    #[test]
    fn debian_12_gets_backports_from_its_own_mirror() {
        let system = System::parse(DEBIAN);
        let install = "sudo apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 -t bookworm-backports qemu-system-arm";
        for candidate in [None, Some(7)] {
            let steps = shell(plan(&system, candidate, &["virt"], TARGETS).unwrap());
            let source = "printf '%s\\n' 'Types: deb' 'URIs: http://m.example/debian/' 'Suites: bookworm-backports' \
                'Components: main' 'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' \
                | sudo tee /etc/apt/sources.list.d/bookworm-backports.sources";
            assert_eq!(steps, [source, "sudo apt-get update", install]);
        }
        let configured = format!("{TARGETS}bookworm-backports main http://b.example/debian/\n");
        let steps = shell(plan(&system, Some(7), &ALL, &configured).unwrap());
        assert_eq!(steps, ["sudo apt-get update", install]);
        let error = plan(&system, Some(7), &ALL, "").unwrap_err().to_string();
        assert!(error.starts_with("apt has no source for bookworm"), "{error}");
    }

    #[test]
    fn other_systems_get_their_own_package_if_it_will_do() {
        let system = System::parse(UBUNTU);
        let own = [
            "sudo apt-get update",
            "sudo apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 qemu-system-arm",
        ];
        assert_eq!(shell(plan(&system, Some(10), &ALL, "").unwrap()), own);
        assert_eq!(shell(plan(&system, None, &ALL, "").unwrap()), own);
        assert_eq!(shell(plan(&system, Some(8), &["virt"], "").unwrap()), own);
        let error = plan(&system, Some(8), &ALL, "").unwrap_err().to_string();
        assert!(
            error.starts_with("Ubuntu 24.04.1 LTS offers QEMU 8 and the machines virt, raspi4b need 9.0"),
            "{error}"
        );
    }

    #[test]
    fn reads_what_apt_says() {
        let policy = "qemu-system-arm:\n  Installed: (none)\n  Candidate: 1:10.0.2+ds-2~bpo12+1\n  Version table:\n";
        assert_eq!(major_version(policy), Some(10));
        assert_eq!(major_version("q:\n  Candidate: 8.2\n"), Some(8));
        assert_eq!(major_version("q:\n  Candidate: (none)\n"), None);
        assert_eq!(major_version(""), None);
        assert_eq!(uri(TARGETS, "bookworm"), Some("http://m.example/debian/"));
        assert_eq!(uri(TARGETS, "trixie"), None);
    }
}
