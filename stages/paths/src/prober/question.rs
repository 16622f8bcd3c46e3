//! What a probe says, and which answers are answers to it.
//!
//! Every question bears a number that nobody else knows, so that no answer can be made up by who does not see it, and the probe's
//! own number.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use crate::target::Target;
use tarn_kernel::icmp;

/// Bytes of the number that nobody else knows.
const TOKEN: usize = 8;
/// Header and question of a DNS message (RFC 1035, 4.1): recursion desired, one question: the root's SOA record. Every server has
/// an answer to it, which is short.
const DNS_QUESTION: [u8; 17] = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1];
/// Where a DNS message has the flags, and the one that tells answers from questions.
const DNS_FLAGS: usize = 2;
const DNS_IS_ANSWER: u8 = 0x80;
/// Where the question begins.
const DNS_BODY: usize = 12;

/// What one prober asks.
pub struct Question {
    kind: Kind,
    /// What is sent, with the last probe's number in it.
    message: Vec<u8>,
    /// Of the number that nobody else knows.
    secret: u16,
    /// What numbers DNS questions bear.
    shuffle: Shuffle,
}

/// Which number stands for which, one for one, without a pattern for who does not know the key: who has seen some of them
/// cannot tell the next (RFC 5452, 4.3). A Feistel network of bytes.
struct Shuffle(RandomState);

impl Shuffle {
    const ROUNDS: u8 = 6;

    fn round(&self, round: u8, half: u8) -> u8 {
        self.0.hash_one((round, half)).to_ne_bytes()[0]
    }

    fn number(&self, sequence: u16) -> u16 {
        let [left, right] = sequence.to_be_bytes();
        let (left, right) = (0..Self::ROUNDS).fold((left, right), |(left, right), round| {
            (right, left ^ self.round(round, right))
        });
        u16::from_be_bytes([left, right])
    }

    fn sequence(&self, number: u16) -> u16 {
        let [left, right] = number.to_be_bytes();
        let (left, right) = (0..Self::ROUNDS).rev().fold((left, right), |(left, right), round| {
            (right ^ self.round(round, left), left)
        });
        u16::from_be_bytes([left, right])
    }
}

enum Kind {
    Echo(IpAddr),
    Dns,
    Datagram,
}

impl Question {
    /// A question to this target.
    pub fn new(target: Target) -> Self {
        let token = RandomState::new().hash_one(target).to_ne_bytes();
        let (kind, message) = match target {
            Target::Echo(address) => (Kind::Echo(address), [&[0; icmp::HEADER][..], &token].concat()),
            target if target.is_dns() => (Kind::Dns, DNS_QUESTION.to_vec()),
            Target::Udp(_) => (Kind::Datagram, [&token[..], &[0; 2]].concat()),
        };
        Self {
            kind,
            message,
            secret: u16::from_ne_bytes([token[0], token[1]]),
            shuffle: Shuffle(RandomState::new()),
        }
    }

    /// The bytes of the probe of this number.
    pub fn ask(&mut self, sequence: u16) -> &[u8] {
        match self.kind {
            Kind::Echo(target) => icmp::write_request(&mut self.message, target, self.secret, sequence),
            Kind::Dns => self.message[..2].copy_from_slice(&self.shuffle.number(sequence).to_be_bytes()),
            Kind::Datagram => self.message[TOKEN..].copy_from_slice(&sequence.to_be_bytes()),
        }
        &self.message
    }

    /// The number of the probe that this answers; `None` for what is no answer to ours.
    pub fn answered(&self, packet: &[u8]) -> Option<u16> {
        let word = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
        match self.kind {
            Kind::Echo(target) => {
                let message = icmp::message(packet, target)?;
                let (identifier, sequence) = icmp::read_reply(message, target)?;
                let is_ours = message.get(icmp::HEADER..) == self.message.get(icmp::HEADER..);
                (is_ours && identifier == self.secret).then_some(sequence)
            }
            // Any answer will do, a refusal too; one to a malformed question need not repeat it.
            Kind::Dns => {
                let body = packet.get(DNS_BODY..)?;
                let is_ours = packet.get(DNS_FLAGS)? & DNS_IS_ANSWER > 0
                    && (body.is_empty() || body.starts_with(&DNS_QUESTION[DNS_BODY..]));
                is_ours.then_some(self.shuffle.sequence(word(0)?))
            }
            Kind::Datagram => {
                (packet.len() == self.message.len() && packet[..TOKEN] == self.message[..TOKEN]).then_some(word(TOKEN)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(text: &str) -> Question {
        Question::new(text.parse().unwrap())
    }

    #[test]
    fn a_name_server_s_answer_is_told_from_everything_else() {
        let mut question = question("udp:192.0.2.53:53");
        let asked = question.ask(300).to_vec();
        assert_eq!(question.answered(&asked), None, "sent back as it was");
        let mut answer = asked.clone();
        answer[2] |= 0x80;
        answer[3] = 5; // refused
        answer.extend([0xc0, 12]);
        assert_eq!(question.answered(&answer), Some(300));
        assert_eq!(question.answered(&answer[..12]), Some(300), "without the question");
        assert_eq!(question.answered(&answer[..11]), None, "cut off");
        answer[14] = 1;
        assert_eq!(question.answered(&answer), None, "to another question");
        let other = super::Question::new("udp:192.0.2.53:53".parse().unwrap());
        assert_ne!(other.answered(&asked), Some(300));
    }

    /// Off the path, nobody can make an answer up for having seen how the numbers go on.
    #[test]
    fn dns_questions_have_numbers_without_a_pattern() {
        let shuffle = Shuffle(RandomState::new());
        let mut seen = std::collections::HashSet::new();
        for sequence in 0..=u16::MAX {
            let number = shuffle.number(sequence);
            assert!(seen.insert(number), "{number} twice");
            assert_eq!(shuffle.sequence(number), sequence);
        }
        let mut question = question("udp:192.0.2.53:53");
        let mut number = |sequence| u16::from_be_bytes(question.ask(sequence)[..2].try_into().unwrap());
        let differences: std::collections::HashSet<u16> = (0..100)
            .map(|sequence| number(sequence) ^ number(sequence + 1))
            .collect();
        assert!(differences.len() > 90, "{} of 100", differences.len());
    }

    #[test]
    fn a_datagram_has_to_come_back_whole() {
        let mut question = question("udp:[2001:db8::1]:7");
        let asked = question.ask(0xfffe).to_vec();
        assert_eq!(question.answered(&asked), Some(0xfffe));
        assert_eq!(question.answered(&asked[1..]), None);
        assert_eq!(question.answered(&[&asked[..], &[0]].concat()), None);
        let stranger = super::Question::new("udp:[2001:db8::1]:7".parse().unwrap());
        assert_eq!(stranger.answered(&asked), None, "somebody else's");
    }
}
