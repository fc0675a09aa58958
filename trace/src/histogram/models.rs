//! Models of tables that are read or cleared while a CPU counts, in every order.

use alloc::sync::Arc;

use kprobes_models::loom::sync::Mutex;
use kprobes_models::{Model, loom::thread, verify};

use crate::hit::action::tests::{Hit, ON, RESOURCES};
use crate::trigger::settings::{Resources, Settings};
use crate::trigger::{Plan, ProbeContext, Request, TriggerKind};

/// The value of `x` in every hit.
const VALUE: u64 = 5;

/// Makes an event with `trigger`, a histogram of the smallest size, so that each read takes few loads.
fn settings(trigger: &str) -> Settings {
    let mut request = Request::parse(trigger, Hit::new().fields()).unwrap();
    if let TriggerKind::Histogram(definition) = &mut request.kind {
        definition.size = 1;
    }
    let mut settings = Settings::new(false).unwrap();
    settings.set_trigger(request, Resources { cpus: 1, ..RESOURCES }, None).unwrap();
    settings
}

/// Returns the plan of an event.
fn plan(settings: &Settings) -> Arc<Plan> {
    Arc::from(settings.plan(None, ProbeContext::AT_ENTRY, &|number| number).unwrap().unwrap())
}

/// Handles a hit whose `u` is `key`, on the only CPU.
fn count(plan: &Plan, key: u8) {
    let mut hit = Hit::with(key, 2, VALUE, "t");
    hit.context.cpu = 0;
    plan.run(&hit.record, &hit.state(), &ON);
}

/// Reads the histogram of `trigger`, which sums `x`, while two hits are counted. If a reader sees a hit, it also sees
/// the key of the hit, and its value in the sum.
fn counting(trigger: &'static str) -> Model {
    Model::new(move || {
        let settings = settings(trigger);
        let plan = plan(&settings);
        let writer = thread::spawn(move || (0..2).for_each(|_| count(&plan, 1)));
        let histogram = settings.triggers()[0].histogram().unwrap();
        let read = || histogram.read().unwrap().entries;
        for entry in read() {
            let [ref keys @ .., hits, sum] = entry[..] else { panic!("{entry:?} is no entry") };
            assert!(keys.iter().zip(1..).all(|(&key, expected)| key == expected), "{keys:?}");
            assert!(sum >= hits * VALUE, "{sum} is not the sum of {hits} hits");
        }
        writer.join().unwrap();
        let entries = read();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0][histogram.key_words()..], [2, 2 * VALUE]);
    })
}

/// Clears a full histogram with variables while a hit has another key. The hit is counted alone or not at all: it finds
/// the old table, and is cleared together with it; it finds the histogram held; or it finds the cleared table.
fn clearing() -> Model {
    Model::new(|| {
        let settings = settings("hist:keys=u:v=x");
        let plan = plan(&settings);
        count(&plan, 1);
        // Stands for the engine, which holds each CPU once it handles no hit.
        let hits = Arc::new(Mutex::new(()));
        let writer = thread::spawn({
            let (plan, hits) = (plan.clone(), hits.clone());
            move || {
                let _hit = hits.lock().unwrap();
                count(&plan, 2);
            }
        });
        let histogram = settings.triggers()[0].histogram().unwrap();
        assert!(histogram.clear(|| drop(hits.lock().unwrap())));
        writer.join().unwrap();
        let later = histogram.read().unwrap();
        assert_eq!(later.dropped, 0, "the hit found the old table full");
        for entry in &later.entries {
            assert_eq!(entry[..2], [2, 1], "the hit shares an entry");
        }
    })
}

#[test]
fn who_sees_hits_sees_what_they_are_counted_under() {
    let models = [counting("hist:keys=u:vals=x"), counting("hist:keys=u,s:vals=x")];
    verify(&["action/count.rs", "histogram/table.rs"], &models, &[]);
}

#[test]
fn a_hit_after_a_histogram_is_cleared_finds_it_empty() {
    verify(&["histogram/mod.rs", "action/count.rs"], &[clearing()], &[]);
}
