//! Parses the index of a Debian archive: deb822(5), a paragraph a package, a field a line.

/// The description of one package.
pub struct Stanza(String);

impl Stanza {
    /// Finds the description of this package in `index`.
    pub fn find(index: &str, package: &str) -> Option<Self> {
        let first = format!("Package: {package}");
        let found = index.split("\n\n").map(str::trim_start).find(|stanza| stanza.lines().next() == Some(&first))?;
        Some(Self(found.into()))
    }

    /// Returns the first line of a field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    }

    /// Returns the first package that begins with `prefix` among the dependencies.
    pub fn dependency(&self, prefix: &str) -> Option<&str> {
        let packages = self.field("Depends")?.split([',', '|']);
        packages.filter_map(|package| package.split_whitespace().next()).find(|package| package.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::Stanza;

    const INDEX: &str = "Package: linux-image-arm64-dbg\nDepends: linux-image-9-arm64-dbg (= 9-1)\nSHA256: 12\n\n\
        Package: linux-image-arm64\nVersion: 9-1\nDepends: other (>= 1) | some, linux-image-9+a-arm64 (= 9-1)\n\
        Filename: pool/l.deb\nSHA256: 34\n";

    #[test]
    fn a_package_is_found_by_its_whole_name() {
        let stanza = Stanza::find(INDEX, "linux-image-arm64").unwrap();
        assert_eq!((stanza.field("Filename"), stanza.field("SHA256")), (Some("pool/l.deb"), Some("34")));
        assert_eq!(stanza.dependency("linux-image-"), Some("linux-image-9+a-arm64"));
        assert_eq!((stanza.dependency("linux-headers-"), stanza.field("SHA512")), (None, None));
        assert!(Stanza::find(INDEX, "linux-image").is_none() && Stanza::find("", "linux-image").is_none());
    }
}
