//! What libbpf says, heard instead of printed.
//!
//! When the kernel refuses a program, libbpf prints the whole log of the kernel's verifier: hundreds of lines, of which
//! one tells the reason. Here that one becomes the error's. [`DEBUG`]`=debug` in the environment prints all of them.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Once, OnceLock};

use anyhow::{Context, Result, anyhow};
use libbpf_rs::{PrintLevel, set_print};

/// The environment variable by which everything is printed.
const DEBUG: &str = "TARN_LOG";

/// As much is kept of what is heard, in bytes: the reason stands at the end.
const KEPT: usize = 1 << 20;

/// The longest reason, in characters.
const REASON_LIMIT: usize = 300;

thread_local! {
    /// What this thread has heard since it began to listen.
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on, libbpf prints nothing by itself. Once is enough.
pub fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, hear)));
    });
}

fn hear(_level: PrintLevel, text: String) {
    if wants_all() {
        // There is nobody to tell when it cannot be printed.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    HEARD.with_borrow_mut(|heard| {
        if let Some(heard) = heard {
            heard.push_str(&text);
            if heard.len() > KEPT {
                // Whole lines: a boundary between characters is one between bytes there.
                let surplus = heard.len() - KEPT;
                let line = heard.as_bytes()[surplus..].iter().position(|byte| *byte == b'\n');
                heard.drain(..line.map_or(heard.len(), |end| surplus + end + 1));
            }
        }
    });
}

fn wants_all() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| std::env::var(DEBUG).is_ok_and(|level| level == "debug"))
}

/// Calls libbpf. Returns its answer, and what it said on this thread meanwhile.
pub fn listen<T>(call: impl FnOnce() -> T) -> (T, String) {
    silence();
    let before = HEARD.replace(Some(String::new()));
    let answer = call();
    (answer, HEARD.replace(before).unwrap_or_default())
}

/// Loads programs.
///
/// # Errors
/// `refused`, with the kernel's reason instead of all that it says.
pub fn load<T>(refused: &'static str, load: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T> {
    let (loaded, said) = listen(load);
    // The error's number says little of a program, but it tells a lack of rights, descriptors or memory.
    let in_words = |error: libbpf_rs::Error| match reason(&said) {
        None => anyhow!(error.to_string()),
        Some(reason) if wants_all() => anyhow!(reason).context(error.to_string()),
        Some(reason) => {
            let all = format!("with {DEBUG}=debug in the environment tarn prints all of it");
            anyhow!("{reason}: {all}").context(error.to_string())
        }
    };
    loaded.map_err(in_words).context(refused)
}

/// The kernel's own words about a request that it refused (the extended acknowledgement of netlink).
pub fn kernel_words(said: &str) -> Option<&str> {
    let line = said.lines().find_map(|line| line.split_once("Kernel error message: "));
    line.map(|(_, words)| words.trim())
}

/// Why the kernel refused programs, from all that libbpf said.
fn reason(said: &str) -> Option<String> {
    let mut lines = said.lines();
    let began = lines.find(|line| line.contains("-- BEGIN PROG LOAD LOG --"));
    let Some(began) = began else {
        // No verifier was asked: the first complaint is the nearest to the cause.
        let first = said.lines().find(|line| !line.trim().is_empty());
        return first.map(|line| shortened(line.trim_start_matches("libbpf: ").trim()));
    };
    let program = began.split('\'').nth(1).unwrap_or("one");
    let log: Vec<&str> = lines
        .take_while(|line| !line.contains("-- END PROG LOAD LOG --"))
        .collect();
    // Without one the program was verified, and something else went wrong.
    let verdict = log.iter().rev().find(|line| is_verdict(line))?;
    Some(shortened(&format!(
        "the verifier refuses {program}: {}",
        verdict.trim()
    )))
}

/// Whether a line of the verifier's log is none of those that trace its way: instructions (`12: (61) r1 = ...`), source
/// (`; if (...)`), states (`from 3 to 7: ...`, `R1=ctx() ...`, `cur state: ...`) and statistics.
fn is_verdict(line: &&str) -> bool {
    const TRACE: [&str; 16] = [
        ";",
        "from ",
        "cur state:",
        "old state:",
        "parent state:",
        "parent didn't",
        "last_idx",
        "mark_precise:",
        "processed ",
        "verification time",
        "stack depth",
        "func#",
        "Func#",
        "Validating ",
        "caller:",
        "callee:",
    ];
    let line = line.trim();
    let number = line.split(':').next().unwrap_or_default();
    let is_instruction = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    let is_state =
        line.starts_with('R') && line.chars().nth(1).is_some_and(|c| c.is_ascii_digit()) && line.contains('=');
    !line.is_empty() && !is_instruction && !is_state && !TRACE.iter().any(|start| line.starts_with(start))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(REASON_LIMIT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "\
libbpf: prog 'redirect_in': BPF program load failed: -EINVAL
libbpf: prog 'redirect_in': -- BEGIN PROG LOAD LOG --
0: R1=ctx() R10=fp0
; int redirect_in(struct __sk_buff *ctx) @ redirect.bpf.c:43
0: (bf) r6 = r1                       ; R1=ctx() R6=ctx()
from 3 to 17: R0=0xffffffff R6=ctx()
35: (b4) w0 = -1
infinite loop detected at insn 36
cur state: R0=0xffffffff R1=pkt_end() R10=fp0 fp-72=ctx()
old state: R0=0xffffffff R1=pkt_end() R10=fp0 fp-72=ctx()
processed 145 insns (limit 1000000) max_states_per_insn 1 total_states 12 peak_states 12 mark_read 0
-- END PROG LOAD LOG --
libbpf: prog 'redirect_in': failed to load: -EINVAL
libbpf: failed to load object 'redirect_bpf'
";

    #[test]
    fn of_a_verifier_s_log_the_user_sees_the_reason() {
        assert_eq!(
            reason(REFUSED).unwrap(),
            "the verifier refuses redirect_in: infinite loop detected at insn 36"
        );
        let pointer = "libbpf: prog 'a': -- BEGIN PROG LOAD LOG --\n12: (61) r1 = *(u32 *)(r2 +0)\n\
                       R2 invalid mem access 'scalar'\nprocessed 3 insns\n-- END PROG LOAD LOG --\n";
        assert_eq!(
            reason(pointer).unwrap(),
            "the verifier refuses a: R2 invalid mem access 'scalar'"
        );
    }

    #[test]
    fn a_program_that_was_verified_was_not_refused_by_the_verifier() {
        let said = "libbpf: prog 'a': BPF program load failed: -EMFILE\nlibbpf: prog 'a': -- BEGIN PROG LOAD LOG --\n\
                    Validating icmp6() func#15...\n12: (95) exit\n\
                    Func#15 ('icmp6') is safe for any args that match its prototype\nprocessed 3 insns\n\
                    -- END PROG LOAD LOG --\n";
        assert_eq!(reason(said), None);
    }

    #[test]
    fn without_a_verifier_s_log_the_first_complaint_is_the_reason() {
        let said = "libbpf: map 'flows4': failed to create: -ENOMEM\nlibbpf: failed to load object 'redirect_bpf'\n";
        assert_eq!(reason(said).unwrap(), "map 'flows4': failed to create: -ENOMEM");
        assert_eq!(reason(""), None);
        assert!(reason(&"é".repeat(10_000)).unwrap().chars().count() < 400);
    }

    #[test]
    fn the_kernel_s_own_words_are_found() {
        let said = "libbpf: Kernel error message: veth: Peer MTU is too large to set XDP\n";
        assert_eq!(kernel_words(said), Some("veth: Peer MTU is too large to set XDP"));
        assert_eq!(kernel_words("libbpf: something else\n"), None);
    }
}
