//! The hash of keys: whatever senders choose, they meet in a shard or bucket as rarely as by chance.

use super::random::Random;

/// `KEY_WORDS`
const WORDS: usize = 6;

// SAFETY: shim_memory.c defines these. They read what the pointers point to, and keep none.
unsafe extern "C" {
    fn shim_hash(numbers: *const u64, key: *const u64, words: u32, source: u32) -> u64;
    safe fn shim_hash_shard(source: u32) -> u32;
    safe fn shim_hash_bucket(hash: u32) -> u32;
}

/// `struct hash_numbers`
pub(super) struct Numbers([u64; 1 + 2 * WORDS]);

impl Numbers {
    pub(super) fn new(random: &mut Random) -> Numbers {
        Numbers([(); 1 + 2 * WORDS].map(|()| random.next()))
    }

    /// The hashes of the source and of the key.
    fn hashes(&self, key: &[u64], source: u32) -> (u32, u32) {
        assert!(key.len() <= WORDS);
        // SAFETY: there are numbers for as many words as there are.
        let hashes = unsafe { shim_hash(self.0.as_ptr(), key.as_ptr(), key.len() as u32, source) };
        ((hashes >> 32) as u32, hashes as u32)
    }

    /// As reassembly_ipv4() does it: addresses and identifier are in network order, as they lie in the header.
    pub(super) fn ipv4(&self, from: [u8; 4], id: u16) -> (u32, u32) {
        let [from, to] = [from, [192, 0, 2, 1]].map(|address| u64::from(u32::from_le_bytes(address)));
        self.hashes(&[to << 32 | from, u64::from(id.swap_bytes()) | 17 << 16, 0], 1)
    }

    /// As reassembly_ipv6(): the source is its /64.
    fn ipv6(&self, from: u128, id: u32) -> (u32, u32) {
        let bytes = from.to_be_bytes();
        let [first, second] = [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
        self.hashes(&[first, second, 1 << 63, 1, u64::from(id.swap_bytes()), 0], 2)
    }
}

/// How hashes fall into places.
struct Spread {
    /// Entries that are looked at to find one, on average.
    probes: f64,
    /// Whether one place has more than four times its part, and six that chance may add.
    is_overfull: bool,
}

fn spread(hashes: &[u32], places: u32) -> Spread {
    let mut counts = vec![0_u64; places as usize];
    for place in hashes {
        counts[*place as usize] += 1;
    }
    let number = hashes.len() as u64;
    let probes: u64 = counts.iter().map(|count| count * (count + 1) / 2).sum();
    Spread {
        probes: probes as f64 / number as f64,
        is_overfull: counts.iter().any(|count| *count > 4 * number / u64::from(places) + 6),
    }
}

/// With the usual key an entry is found as quickly as by chance, and nearly so with all but one key in 20. Without the step of the
/// hash that is not linear, what is sequential met nine times as often with such a key.
fn is_even(name: &str, places: u32, hash: impl Fn(&Numbers) -> Vec<u32>) {
    const KEYS: usize = 200;
    let mut random = Random(places.into());
    let keys: Vec<Vec<u32>> = (0..KEYS).map(|_| hash(&Numbers::new(&mut random))).collect();
    let chance = 1.0 + (keys[0].len() - 1) as f64 / f64::from(2 * places);
    let spreads: Vec<Spread> = keys.iter().map(|hashes| spread(hashes, places)).collect();
    let mut probes: Vec<f64> = spreads.iter().map(|spread| spread.probes / chance).collect();
    probes.sort_by(f64::total_cmp);
    let (usual, rare) = (probes[KEYS / 2], probes[KEYS - KEYS / 20]);
    let overfull = spreads.iter().filter(|spread| spread.is_overfull).count();
    println!(
        "{name}: {usual:.2} of the probes by chance ({chance:.2}), {rare:.2} with one key in 20; {overfull} full places"
    );
    assert!(usual <= 1.2 && rare <= 1.5, "{name}: {usual} {rare}");
    assert!(overfull <= KEYS / 20, "{name}: {overfull}");
}

/// The place of a source among all shards' buckets: memory.c takes the lowest bits within a shard.
fn bucket_of_source(source: u32) -> u32 {
    shim_hash_shard(source) * 64 + source % 64
}

fn sources_are_even(name: &str, number: u32, source: impl Fn(&Numbers, u32) -> u32) {
    is_even(name, 64, |numbers| {
        (0..number).map(|i| shim_hash_shard(source(numbers, i))).collect()
    });
    is_even(name, 4096, |numbers| {
        (0..number).map(|i| bucket_of_source(source(numbers, i))).collect()
    });
}

#[test]
fn hash_of_one_sources_datagrams_fills_no_bucket() {
    let from = [198, 51, 100, 7];
    for number in [64, 1000, 2000] {
        let sequential = |numbers: &Numbers| {
            (0..number)
                .map(|i| shim_hash_bucket(numbers.ipv4(from, 65_000_u16.wrapping_add(i)).1))
                .collect()
        };
        is_even("IPv4, sequential identifiers", 256, sequential);
        let random = |numbers: &Numbers| {
            let mut random = Random(3);
            (0..number)
                .map(|_| shim_hash_bucket(numbers.ipv4(from, random.next() as u16).1))
                .collect()
        };
        is_even("IPv4, random identifiers", 256, random);
        let ipv6 = |numbers: &Numbers| {
            (0..number)
                .map(|i| shim_hash_bucket(numbers.ipv6(0x2001_0db8 << 96 | 1, i.into()).1))
                .collect()
        };
        is_even("IPv6, sequential identifiers", 256, ipv6);
    }
}

#[test]
fn hash_of_ipv4_sources_fills_no_shard() {
    sources_are_even("one network", 4000, |numbers, i| {
        let [_, _, third, fourth] = i.to_be_bytes();
        numbers.ipv4([10, 0, third, fourth], 1).0
    });
    sources_are_even("the last octet fixed", 4000, |numbers, i| {
        let [_, _, third, fourth] = i.to_be_bytes();
        numbers.ipv4([10, third, fourth, 1], 1).0
    });
    sources_are_even("the upper octets varied", 4000, |numbers, i| {
        let [_, _, third, fourth] = i.to_be_bytes();
        numbers.ipv4([fourth, third, 0, 53], 1).0
    });
    let mut random = Random(11);
    let any: Vec<u32> = (0..4000).map(|_| random.next() as u32).collect();
    sources_are_even("any", 4000, |numbers, i| {
        numbers.ipv4(any[i as usize].to_be_bytes(), 1).0
    });
}

#[test]
fn hash_of_ipv6_networks_fills_no_shard() {
    let prefix = 0x2001_0db8_u128 << 96;
    sources_are_even("the /64s of one /48", 4000, |numbers, i| {
        numbers.ipv6(prefix | u128::from(i) << 64, 1).0
    });
    sources_are_even("the /48s of one /32", 4000, |numbers, i| {
        numbers.ipv6(prefix | u128::from(i) << 80, 1).0
    });
    sources_are_even("the /32s", 4000, |numbers, i| {
        numbers.ipv6(u128::from(i + 0x2001_0000) << 96, 1).0
    });
}

/// A source has one hash in all its datagrams, and an IPv6 host cannot choose another within its network.
#[test]
fn hash_of_a_source_is_that_of_its_address_alone() {
    let mut random = Random(13);
    let numbers = Numbers::new(&mut random);
    let from = 0x2001_0db8_0001_0002 << 64;
    for i in 0..1000 {
        assert_eq!(numbers.ipv4([1, 2, 3, 4], i).0, numbers.ipv4([1, 2, 3, 4], 0).0);
        assert_eq!(
            numbers.ipv6(from | u128::from(random.next()), i.into()).0,
            numbers.ipv6(from, 0).0
        );
        assert!(shim_hash_shard(random.next() as u32) < 64 && shim_hash_bucket(random.next() as u32) < 256);
    }
}

/// Every half of every word counts, and each by a number of its own: two that change places make another key.
#[test]
fn hash_of_a_key_depends_on_all_of_it() {
    let mut random = Random(19);
    let numbers = Numbers::new(&mut random);
    let key: [u64; WORDS] = [(); WORDS].map(|()| random.next());
    let half = |index: usize| key[index / 2] >> (index % 2 * 32) & 0xffff_ffff;
    let replace = |key: &mut [u64], index: usize, by: u64| key[index / 2] ^= (half(index) ^ by) << (index % 2 * 32);
    for i in 0..2 * WORDS {
        let mut other = key;
        replace(&mut other, i, half(i) ^ 1);
        assert_ne!(numbers.hashes(&key, 2).1, numbers.hashes(&other, 2).1, "{i}");
        for j in i + 1..2 * WORDS {
            let mut other = key;
            replace(&mut other, i, half(j));
            replace(&mut other, j, half(i));
            assert_ne!(numbers.hashes(&key, 2).1, numbers.hashes(&other, 2).1, "{i} {j}");
        }
    }
}
