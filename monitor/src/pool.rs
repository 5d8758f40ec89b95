//! The threads that names and reports are worked out by.

use rayon::ThreadPoolBuilder;
use std::sync::OnceLock;

/// Whether there are any: as many as processors, or one where limits of processes or memory allow no more. To be asked before rayon is,
/// which panics where it has none.
pub fn is_there() -> bool {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    *IS_THERE.get_or_init(|| {
        // A first try that fails would be the last one for the global pool.
        let fits = |threads: &usize| {
            let pool = ThreadPoolBuilder::new().num_threads(*threads);
            pool.build().is_ok()
        };
        let threads = [0, 1].into_iter().find(fits);
        let build = |threads| ThreadPoolBuilder::new().num_threads(threads).build_global();
        threads.is_some_and(|threads| build(threads).is_ok())
    })
}
