//! Runs a model, as it is and with each of its orderings weakened.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use kprobes_random::tried::is_thorough;
use loom::model::Builder;

use crate::weaken::{self, Run, Weakening};

/// A small program whose threads are interleaved in every possible way.
#[derive(Clone)]
pub struct Model {
    body: Arc<dyn Fn() + Send + Sync>,
    preemptions: Option<usize>,
}

impl Model {
    /// Makes a model of `body`, which is called once for each interleaving, and starts threads by `loom::thread`.
    #[must_use]
    pub fn new(body: impl Fn() + Send + Sync + 'static) -> Self {
        Self { body: Arc::new(body), preemptions: None }
    }

    /// Limits the exploration to interleavings in which threads are preempted, where they could continue, at most
    /// `preemptions` times. For models that have too many interleavings.
    #[must_use]
    pub fn preempted_at_most(self, preemptions: usize) -> Self {
        Self { preemptions: Some(preemptions), ..self }
    }

    /// Returns the model with this limit, if its own permits more. There are far fewer interleavings then, in
    /// which most weakened orderings are noticed already.
    fn with_fewer_preemptions(&self, preemptions: usize) -> Option<Self> {
        let permits_more = self.preemptions.is_none_or(|most| most > preemptions);
        permits_more.then(|| self.clone().preempted_at_most(preemptions))
    }

    /// Explores all interleavings of the model, with an ordering weakened if one is given.
    fn explore(&self, weakened: Option<Weakening>) -> (Result<(), String>, Run) {
        let Self { body, preemptions } = self.clone();
        // In a thread of its own, because a model that has failed leaves loom's state in its thread as it was at the
        // failure.
        let run = move || {
            weaken::begin(weakened);
            let mut builder = Builder::new();
            builder.preemption_bound = preemptions;
            let result = catch_unwind(AssertUnwindSafe(|| builder.check(move || body())));
            (result.map_err(|payload| message(&*payload)), weaken::end())
        };
        thread::spawn(run).join().unwrap_or_else(|payload| (Err(message(&*payload)), Run::default()))
    }
}

/// The most preemptions of a model, unless the run is [thorough](is_thorough). Every weakened ordering is noticed with
/// these, or the check fails. A mistake in the algorithm itself that takes more goes unseen.
const USUAL_PREEMPTIONS: usize = 2;

/// Checks that no model ever fails, and that for each ordering that the models use in `files`, one of them fails in
/// some interleaving if the ordering is weakened. `unnoticed` lists the orderings for which none fails.
///
/// Models are preempted at most [`USUAL_PREEMPTIONS`] times, and as often as they permit if the run is
/// [thorough](is_thorough).
///
/// # Panics
///
/// If one of the checks fails.
pub fn verify(files: &[&str], models: &[Model], unnoticed: &[&str]) {
    let usual = |model: &Model| model.with_fewer_preemptions(USUAL_PREEMPTIONS).filter(|_| !is_thorough());
    let models: Vec<Model> = models.iter().map(|model| usual(model).unwrap_or_else(|| model.clone())).collect();
    let mut possible: Vec<Weakening> = Vec::new();
    for model in &models {
        let (result, run) = model.explore(None);
        if let Err(reason) = result {
            panic!("the model fails: {reason}");
        }
        for weakening in run.possible {
            // Several models may use the same ordering.
            if weakening.is_in(files) && !possible.contains(&weakening) {
                possible.push(weakening);
            }
        }
    }
    assert!(!possible.is_empty(), "the models come to no ordering");
    let mut found = Vec::new();
    for weakening in possible {
        let notices = |model: &Model| match model.explore(Some(weakening)).0 {
            Ok(()) => false,
            Err(reason) if reason.contains("exceeded maximum") => panic!("{weakening:?}: the model is endless"),
            Err(_) => true,
        };
        let few = |preemptions| models.iter().filter_map(move |model| model.with_fewer_preemptions(preemptions));
        let is_noticed = few(1).chain(few(2)).any(|model| notices(&model)) || models.iter().any(notices);
        if !is_noticed {
            found.push(weakening);
        }
    }
    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(names, unnoticed, "orderings can be weakened, and no model fails: {found:#?}");
}

/// Returns the message of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
        (Some(message), _) => message.clone(),
        (_, Some(message)) => (*message).to_owned(),
        _ => "a panic without a message".to_owned(),
    }
}
