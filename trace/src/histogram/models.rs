//! Models of a table that is read while its CPU counts, in every order.

use alloc::sync::Arc;

use kprobes_models::{Model, loom::thread, verify};

use crate::hit::action::tests::{Hit, ON, RESOURCES};
use crate::trigger::settings::{Resources, Settings};
use crate::trigger::{Plan, ProbeContext, Request, TriggerKind};

/// The value of `x` in every hit.
const VALUE: u64 = 5;

/// Reads the histogram of `trigger`, which sums `x`, while two hits are counted. If a reader sees a hit, it also sees
/// the key of the hit, and its value in the sum.
fn counting(trigger: &'static str) -> Model {
    Model::new(move || {
        let mut request = Request::parse(trigger, Hit::new().fields()).unwrap();
        // The smallest table, so that each read takes few loads.
        if let TriggerKind::Histogram(definition) = &mut request.kind {
            definition.size = 1;
        }
        let mut settings = Settings::new(false).unwrap();
        settings.set_trigger(request, Resources { cpus: 1, ..RESOURCES }, None).unwrap();
        let plan: Arc<Plan> =
            Arc::from(settings.plan(None, ProbeContext::AT_ENTRY, &|number| number).unwrap().unwrap());
        let writer = thread::spawn(move || {
            let mut hit = Hit::with(1, 2, VALUE, "t");
            hit.context.cpu = 0;
            (0..2).for_each(|_| _ = plan.run(&hit.record, &hit.state(), &ON));
        });
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

#[test]
fn who_sees_hits_sees_what_they_are_counted_under() {
    let models = [counting("hist:keys=u:vals=x"), counting("hist:keys=u,s:vals=x")];
    verify(&["action/count.rs", "histogram/table.rs"], &models, &[]);
}
