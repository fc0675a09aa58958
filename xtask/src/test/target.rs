//! The tests on the target: every one has a machine of its own, so that none can spoil another and a machine
//! that hangs is one result. All is decided from the UART.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{
    boot,
    dialogue::{Subject, converse},
    network,
    pool::Site,
    protocol::{Listing, Trial},
    report::{Finished, Outcome},
    select::{Demands, Trait, Traits},
    sessions,
    wanted::Wanted,
};
use crate::{
    bench,
    board::{BASE, Board, Configuration, Overrides},
    image,
    machine::Start,
};

/// What is talked about.
pub enum Talk {
    Trial(Trial),
    Other(Box<dyn Subject<()> + Send>),
}

impl Talk {
    /// Has the talk, for `seconds` at most from one line to the next.
    pub fn with(self, start: &dyn Start, seconds: u64) -> Result<Outcome, String> {
        match self {
            Self::Trial(mut trial) => converse(start, seconds, &mut trial),
            Self::Other(mut subject) => converse(start, seconds, &mut *subject).map(|()| Outcome::Passed),
        }
    }
}

/// A configuration of a board.
struct Place<'a> {
    board: &'a Board,
    configuration: &'a Configuration,
    /// What the names of the tests in it begin with.
    name: String,
    traits: Traits,
}

impl Place<'_> {
    fn arguments(&self, image: &Path) -> Result<Vec<OsString>> {
        self.board.arguments(self.configuration, &Overrides::default(), image)
    }
}

/// One test in one place.
struct Candidate {
    /// Without the place.
    name: String,
    /// The index of the place.
    place: usize,
    demands: Demands,
    machine: Box<dyn Start + Send>,
    /// The error says why there is nothing to talk about.
    subject: Result<Talk, String>,
}

/// Everything that is tested on machines, and where.
pub struct Targets<'a> {
    places: Vec<Place<'a>>,
    pub wanted: &'a Wanted,
    /// Every test runs in every place, and not only in those that can make a difference to it.
    pub is_thorough: bool,
    /// Some places were left out, so that there may be none for a test.
    pub is_narrowed: bool,
    /// Tests are listed instead of run.
    pub is_listing: bool,
    /// How long a machine may take from one line to the next.
    pub seconds: u64,
}

impl<'a> Targets<'a> {
    /// Nothing yet.
    pub fn new(wanted: &'a Wanted, seconds: u64) -> Self {
        Self { places: Vec::new(), wanted, is_thorough: false, is_narrowed: false, is_listing: false, seconds }
    }

    /// Adds a place.
    pub fn add(&mut self, board: &'a Board, configuration: &'a Configuration) -> Result<()> {
        let (name, traits) = (board.place(configuration), board.traits(configuration)?);
        self.places.push(Place { board, configuration, name, traits });
        Ok(())
    }

    /// Whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The boards whose base configuration is among the places.
    pub fn whole_boards(&self) -> impl Iterator<Item = &'a Board> {
        self.places.iter().filter(|place| place.configuration.name == BASE).map(|place| place.board)
    }

    /// Adds the tests of the tests image, whose image is `image`.
    pub fn add_listed(&'a self, site: &Site<'_, 'a>, image: &Path) -> Result<()> {
        let Some(first) = self.places.first() else { return Ok(()) };
        let tests =
            converse(&first.arguments(image)?, self.seconds, &mut Listing::default()).map_err(anyhow::Error::msg)?;
        let mut candidates = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            let arguments = place.arguments(image)?;
            candidates.extend(tests.iter().map(|test| Candidate {
                name: test.name.clone(),
                place: index,
                demands: test.demands.clone(),
                machine: Box::new(arguments.clone()),
                subject: Ok(Talk::Trial(Trial::new(test.clone(), place.traits.lacks.clone()))),
            }));
        }
        self.begin(site, candidates);
        Ok(())
    }

    /// Adds everything that is tried on the kernel itself, which is the program `elf` and its image `image`.
    pub fn add_kernel(&'a self, site: &Site<'_, 'a>, elf: &Path, image: &Path) -> Result<()> {
        let mut candidates = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            let arguments = place.arguments(image)?;
            let plain = place.board.cpus(place.board.configuration(BASE)?);
            let mut console = |name: &str, demands: &Demands, subject: Result<_, String>| {
                candidates.push(Candidate {
                    name: format!("console::{name}"),
                    place: index,
                    demands: demands.clone(),
                    machine: Box::new(arguments.clone()),
                    subject: subject.map(Talk::Other),
                });
            };
            let cpus = place.traits.cpus;
            for session in sessions::all(&place.board.name, cpus, cpus == plain)? {
                console(&session.name, &session.demands, session.subject());
            }
            console("garbage", &Demands::on(&[Trait::Board]), sessions::garbage());
            let boots = boot::all(place.board, place.configuration, elf, image)?;
            candidates.extend(boots.into_iter().map(|boot| Candidate {
                name: format!("boot::{}", boot.name),
                place: index,
                demands: boot.demands,
                machine: Box::new(boot.arguments),
                subject: boot.subject.map(Talk::Other),
            }));
            let mut captures = image.as_os_str().to_owned();
            captures.push(format!(".captures/{}-{}", place.board.name, place.configuration.name));
            let visits = network::all(place.board, place.configuration, &arguments, captures.as_ref())?;
            candidates.extend(visits.into_iter().map(|trial| Candidate {
                name: format!("network::{}", trial.name),
                place: index,
                demands: trial.demands,
                machine: Box::new(trial.machine),
                subject: trial.subject.map(Talk::Other),
            }));
        }
        self.begin(site, candidates);
        Ok(())
    }

    /// Adds every case of the benchmark, once. It measures on one CPU, and what else the machine is changes figures alone.
    pub fn add_benchmark(&'a self, site: &Site<'_, 'a>, image: &Path) -> Result<()> {
        let candidate = |(index, place): (usize, &Place<'_>)| {
            Ok(Candidate {
                name: "bench::cases".into(),
                place: index,
                demands: Demands::default(),
                machine: Box::new(place.arguments(image)?),
                subject: Ok(Talk::Other(Box::new(bench::Rehearsal::default()))),
            })
        };
        let candidates = self.places.iter().enumerate().map(candidate).collect::<Result<_>>()?;
        self.begin(site, candidates);
        Ok(())
    }

    /// Adds the candidates that are to run, or lists them.
    fn begin(&'a self, site: &Site<'_, 'a>, candidates: Vec<Candidate>) {
        let mut tests: Vec<(String, Vec<Candidate>)> = Vec::new();
        for candidate in candidates {
            match tests.iter_mut().find(|(name, _)| *name == candidate.name) {
                Some((_, same)) => same.push(candidate),
                None => tests.push((candidate.name.clone(), vec![candidate])),
            }
        }
        for (name, candidates) in tests {
            self.begin_one(site, &name, candidates);
        }
    }

    /// Adds one test in the places where it is to run, out of those where it can.
    fn begin_one(&'a self, site: &Site<'_, 'a>, name: &str, mut candidates: Vec<Candidate>) {
        let Some(demands) = candidates.first().map(|candidate| candidate.demands.clone()) else { return };
        if !self.is_thorough {
            let traits: Vec<_> = candidates.iter().map(|one| self.places[one.place].traits.clone()).collect();
            let selected = demands.select(&traits);
            if selected.is_empty() {
                let full = format!("{}::{name}", self.places[candidates[0].place].name);
                if self.wanted.has(&full) && !self.is_listing {
                    let need = demands.needs.unwrap_or_default();
                    let outcome = match self.is_narrowed {
                        true => Ok(Outcome::Skipped(format!("no {need}"))),
                        false => Err(format!("no configuration of any board has what it needs, a {need}")),
                    };
                    site.results.add(Finished::new(full, outcome));
                }
                return;
            }
            let mut index = 0;
            candidates.retain(|_| {
                index += 1;
                selected.contains(&(index - 1))
            });
        }
        candidates.retain(|candidate| self.wanted.has(&self.full_name(candidate)));
        if self.is_listing {
            let places: Vec<_> = candidates.iter().map(|one| self.places[one.place].name.as_str()).collect();
            if !places.is_empty() {
                site.results.list(format!("{name}: {} ({demands})", places.join(" ")), places.len());
            }
            return;
        }
        for candidate in candidates {
            let full = self.full_name(&candidate);
            let seconds = self.seconds;
            site.add(move |results| {
                results.time(full, || candidate.subject.and_then(|subject| subject.with(&*candidate.machine, seconds)));
            });
        }
    }

    fn full_name(&self, candidate: &Candidate) -> String {
        format!("{}::{}", self.places[candidate.place].name, candidate.name)
    }
}

/// The program that Cargo built, and its image beside it.
pub fn with_image(elf: PathBuf) -> Result<(PathBuf, PathBuf)> {
    let image = image::write_beside(&elf)?;
    Ok((elf, image))
}
