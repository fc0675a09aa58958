//! The order of ready tasks, and the CPU for a new task: the decisions as pure functions, apart from the data they
//! apply to.
//!
//! All ready tasks of the machine form one line, ordered by when they became ready. Each CPU has its own queue only so
//! that CPUs seldom contend for a lock; the queues are how the line is stored, not an order of their own. A CPU that
//! picks takes the task that has been ready longest: the first in its own queue, unless the first in another queue has
//! been ready for longer.
//!
//! **What follows.** No task that became ready later overtakes a ready task. So tasks that compute get equal shares,
//! however many there are and wherever they started: between two turns of one task, every other task has one turn. If
//! all queues are equally long, no task is taken from another queue: when a CPU picks, the first task in its queue has
//! been ready for as many quanta as the queue is long, and the first tasks in other queues for at most that. If the
//! lengths differ, tasks move at every quantum, and share the difference.

/// The ready time that is published for a queue without a task.
pub const NO_TASK: u64 = u64::MAX;

/// Returns the CPU whose first task has been ready longest, if it became ready before `own`. `others` are CPUs, each
/// with the time since when the first task in its queue has been ready.
pub fn first_in_line(own: u64, others: impl Iterator<Item = (usize, u64)>) -> Option<usize> {
    let first = others.min_by_key(|(_, since)| *since).filter(|(_, since)| *since < own);
    first.map(|(cpu, _)| cpu)
}

/// Returns the CPU that has the fewest tasks, the first such CPU of several. `loads` are CPUs with their numbers of
/// tasks.
pub fn least_loaded(loads: impl Iterator<Item = (usize, usize)>) -> Option<usize> {
    loads.min_by_key(|(_, load)| *load).map(|(cpu, _)| cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn the_task_that_has_waited_longest_is_next() {
        assert_eq!(first_in_line(5, [(1, 7), (2, 3), (3, 4)].into_iter()), Some(2));
        assert_eq!(first_in_line(3, [(1, 7), (2, 3), (3, 4)].into_iter()), None);
        assert_eq!(first_in_line(NO_TASK, [(1, NO_TASK), (2, NO_TASK)].into_iter()), None);
        assert_eq!(first_in_line(NO_TASK, [(1, NO_TASK), (2, 9)].into_iter()), Some(2));
        assert_eq!(first_in_line(NO_TASK, core::iter::empty()), None);
    }

    #[test]
    fn a_new_task_goes_where_the_fewest_are() {
        assert_eq!(least_loaded([(0, 2), (1, 1), (3, 1)].into_iter()), Some(1));
        assert_eq!(least_loaded([(2, 0)].into_iter()), Some(2));
        assert_eq!(least_loaded(core::iter::empty()), None);
    }

    /// A model of CPUs on which tasks compute. The quanta of CPU n end n ticks after those of CPU 0.
    struct Model {
        queues: Vec<VecDeque<(u64, usize)>>,
        running: Vec<Option<usize>>,
        turns: Vec<u64>,
        moves: u64,
        now: u64,
    }

    const QUANTUM: u64 = 16;

    impl Model {
        /// Creates a model in which `tasks` tasks have become ready on CPU 0.
        fn new(cpus: usize, tasks: usize) -> Self {
            let mut queues = vec![VecDeque::new(); cpus];
            queues[0] = (0..tasks).map(|task| (task as u64, task)).collect();
            Self { queues, running: vec![None; cpus], turns: vec![0; tasks], moves: 0, now: tasks as u64 }
        }

        fn run(&mut self, quanta: u64) {
            for _ in 0..quanta {
                for cpu in 0..self.queues.len() {
                    self.pick(cpu, self.now + cpu as u64);
                }
                self.now += QUANTUM;
            }
        }

        fn pick(&mut self, cpu: usize, now: u64) {
            let since = |queue: &VecDeque<(u64, usize)>| queue.front().map_or(NO_TASK, |first| first.0);
            let others = self.queues.iter().enumerate().filter(|(other, _)| *other != cpu);
            let from = first_in_line(since(&self.queues[cpu]), others.map(|(other, queue)| (other, since(queue))));
            if let Some(first) = from.and_then(|from| self.queues[from].pop_front()) {
                self.queues[cpu].push_front(first);
                self.moves += 1;
            }
            if let Some(task) = self.running[cpu].take() {
                self.queues[cpu].push_back((now, task));
            }
            self.running[cpu] = self.queues[cpu].pop_front().map(|(_, task)| task);
            if let Some(task) = self.running[cpu] {
                self.turns[task] += 1;
            }
        }
    }

    #[test]
    fn tasks_that_compute_have_equal_turns() {
        for cpus in 1..=8 {
            for tasks in 1..=20 {
                let mut model = Model::new(cpus, tasks);
                model.run(500);
                let (least, most) = (model.turns.iter().min().unwrap(), model.turns.iter().max().unwrap());
                assert!(most - least <= 1, "{cpus} CPUs: {:?}", model.turns);
                assert_eq!(model.turns.iter().sum::<u64>(), 500 * cpus.min(tasks) as u64);
            }
        }
    }

    #[test]
    fn tasks_stay_where_all_queues_are_equally_long() {
        for cpus in 1..=8 {
            for each in 1..=4 {
                let mut model = Model::new(cpus, cpus * each);
                model.run(50);
                let moves = model.moves;
                model.run(500);
                assert_eq!(model.moves, moves, "{cpus} CPUs, {each} tasks each");
            }
        }
    }
}
