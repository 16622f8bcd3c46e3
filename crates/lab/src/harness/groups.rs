//! The marks in tests' names, and the guests in which tests are run together.

use crate::cards::{self, Cards};
use crate::debug;
use crate::software;
use crate::suite::{DEFAULT, SUITES, Suite};

/// A guest of its own pays for itself only with this many tests.
const TESTS_A_GUEST: usize = 8;

/// So many tests of the last suite are run one after the other, over all processors.
const TESTS_AT_A_TIME: usize = 128;

/// What the name of a test, or of a module of tests, begins with if they are to run on every kernel: what they test is built from
/// the kernel's headers, passes its verifier, or uses what kernels change.
const EVERY_KERNEL: &str = "lab_kernel";

/// What it begins with if they are to run on the oldest kernel, too: what they test uses only what kernels keep, and what the
/// oldest may lack.
const OLDEST_KERNEL: &str = "lab_oldest";

/// What it begins with if they take long and find what others rarely miss: they run where everything is asked for.
const LONG: &str = "lab_long";

/// The tests of a listing that need the lab.
pub(super) fn names(listing: &str) -> Vec<String> {
    let names = listing.lines().filter_map(|line| line.strip_suffix(": test"));
    let needs_lab = |name: &&str| name_of(name).starts_with("lab_");
    names.filter(needs_lab).map(str::to_owned).collect()
}

/// The last part of a test's path.
pub(super) fn name_of(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

/// Whether the name of a test, or of a module that it is in, begins so.
fn is_marked(test: &str, mark: &str) -> bool {
    test.split("::").any(|part| part.starts_with(mark))
}

/// The cards of the guest in which a test runs.
pub(super) fn cards_of(test: &str) -> Cards {
    match is_marked(test, cards::TESTS) {
        true => cards::OF_TESTS,
        false => Cards::None,
    }
}

/// Whether the guest of a test has more software than every guest.
pub(super) fn wants_software(test: &str) -> bool {
    is_marked(test, software::TESTS)
}

/// Whether a test says of which kernels it depends.
pub(super) fn says_kernels(test: &str) -> bool {
    is_marked(test, EVERY_KERNEL) || is_marked(test, OLDEST_KERNEL)
}

/// Whether a test, by its marks, runs on a suite's kernel.
pub(super) fn is_for(test: &str, suite: &Suite) -> bool {
    let is_oldest = Some(suite) == SUITES.first();
    suite.name == DEFAULT || is_marked(test, EVERY_KERNEL) || (is_oldest && is_marked(test, OLDEST_KERNEL))
}

pub(super) fn is_long(test: &str) -> bool {
    is_marked(test, LONG)
}

/// In how many guests a harness's tests are run. Only the last suite's are spread, so that all of `jobs` processors have
/// something to do until the end. What other harnesses hold does not count: a guest with the same tests need not run again.
pub(super) fn parts(tests: usize, is_last: bool, jobs: usize) -> usize {
    let tests_a_guest = (TESTS_AT_A_TIME / jobs).max(TESTS_A_GUEST);
    if is_last { tests.div_ceil(tests_a_guest) } else { 1 }
}

/// The tests of each guest; none that breaks the kernel on purpose, unless it is a debug kernel.
pub(super) fn groups(tests: &[String], parts: usize, debug: bool) -> Vec<Vec<String>> {
    let breaks_the_kernel = |test: &&String| name_of(test).starts_with(debug::TESTS);
    let (breaking, tests): (Vec<_>, Vec<_>) = tests.iter().partition(breaks_the_kernel);
    let (with_cards, tests): (Vec<&String>, Vec<_>) = tests.into_iter().partition(|test| cards_of(test) != Cards::None);
    let (with_software, tests): (Vec<&String>, Vec<_>) = tests.into_iter().partition(|test| wants_software(test));
    // In turn, because tests of one file take about as long as each other.
    let of = |part: usize| tests.iter().skip(part).step_by(parts).copied().cloned().collect();
    let mut groups: Vec<Vec<String>> = (0..parts).map(of).collect();
    for others in [with_cards, with_software] {
        groups.push(others.into_iter().cloned().collect());
    }
    // A kernel that has complained checks less afterwards: each of these has a guest of its own.
    if debug {
        groups.extend(breaking.into_iter().map(|test| vec![test.clone()]));
    }
    groups.retain(|tests| !tests.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "lab::a::lab_x: test\nlab::a::slow: test\nlab_y: test\nb::lab_bench: benchmark\n";

    #[test]
    fn only_tests_that_need_the_lab_are_run_there() {
        assert_eq!(names(LISTING), ["lab::a::lab_x", "lab_y"]);
    }

    /// Where it is not needed, it makes every boot longer.
    #[test]
    fn tests_that_want_software_have_a_guest_of_their_own() {
        let tests = ["lab_a", "lab_software_b", "lab_c", "lab_cards_d"].map(str::to_owned);
        assert_eq!(
            groups(&tests, 1, false),
            [vec!["lab_a", "lab_c"], vec!["lab_cards_d"], vec!["lab_software_b"]]
        );
    }

    /// A processor would otherwise stand idle while another works on the last suite.
    #[test]
    fn the_last_suite_is_split_so_that_no_processor_waits() {
        assert_eq!(parts(100, false, 2), 1);
        assert_eq!(parts(256, true, 2), 4);
        assert_eq!(parts(100, true, 1), 1);
        assert_eq!(parts(5, true, 64), 1);
        assert_eq!(parts(100, true, 64), 13);
    }

    #[test]
    fn tests_that_break_the_kernel_have_a_debug_kernel_each() {
        let tests = ["lab_a", "lab_b", "lab_debug_kernel_c", "lab_d"].map(str::to_owned);
        assert_eq!(groups(&tests, 2, false), [vec!["lab_a", "lab_d"], vec!["lab_b"]]);
        assert_eq!(
            groups(&tests, 1, true),
            [vec!["lab_a", "lab_b", "lab_d"], vec!["lab_debug_kernel_c"]]
        );
        assert_eq!(groups(&tests[2..3], 1, false), Vec::<Vec<String>>::new());
    }
}
