//! The datagrams of the experiment, and how their cases are called.

use tarn_lab::experiment::Case;
use tarn_lab::random::Random;

/// The order in which fragments arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the first to the last.
    Forward,
    /// From the last to the first.
    Reverse,
    /// At random, anew for each datagram.
    Random,
    /// Two halves, a fragment of each in turn.
    Halves,
}

impl Order {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Forward, Self::Reverse, Self::Random, Self::Halves];

    /// As cases and the bench call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "in-order",
            Self::Reverse => "reverse",
            Self::Random => "random",
            Self::Halves => "halves",
        }
    }

    /// What a reader is told.
    fn title(self) -> &'static str {
        match self {
            Self::Forward => "in order",
            Self::Reverse => "reverse",
            Self::Random => "random",
            Self::Halves => "halves",
        }
    }

    /// Puts fragments in this order.
    pub fn arrange<T: Clone>(self, fragments: &mut [T], random: &mut Random) {
        match self {
            Self::Forward => {}
            Self::Reverse => fragments.reverse(),
            Self::Random => random.shuffle(fragments),
            Self::Halves => {
                let whole = fragments.to_vec();
                let half = whole.len().div_ceil(2);
                for (place, fragment) in fragments.iter_mut().enumerate() {
                    let index = if place % 2 == 0 { place / 2 } else { half + place / 2 };
                    *fragment = whole[index].clone();
                }
            }
        }
    }
}

/// Datagrams of one sort: their fragments, and each one's bytes.
pub type Shape = (u32, u32);

/// All that the function is measured with.
pub const SHAPES: [Shape; 5] = [(2, 1480), (8, 1480), (45, 1400), (200, 64), (1000, 64)];
/// Those that go over the whole path.
pub const PATH_SHAPES: [Shape; 3] = [(8, 1480), (45, 1400), (200, 64)];

/// The bytes that fit into a frame: IPv6 has larger headers.
pub fn size(shape: Shape, is_v6: bool) -> u32 {
    if is_v6 { shape.1.min(1448) } else { shape.1 }
}

/// `tarn-reverse-45`, `tarn-reverse-45-v6`.
pub fn name(who: &str, order: Order, fragments: u32, is_v6: bool) -> String {
    let family = if is_v6 { "-v6" } else { "" };
    format!("{who}-{}-{fragments}{family}", order.name())
}

/// A case without figures.
pub fn case((who, title): (&str, &str), order: Order, fragments: u32, is_v6: bool) -> Case {
    let family = if is_v6 { ", IPv6" } else { "" };
    let title = format!("{title}: {fragments} fragments, {}{family}", order.title());
    Case::new(name(who, order, fragments, is_v6), title)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(order: Order, count: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (0..count).collect();
        order.arrange(&mut places, &mut Random::new(1, "order"));
        places
    }

    /// A figure is told by the order that it names.
    #[test]
    fn fragments_come_in_the_order_that_is_named() {
        assert_eq!(arranged(Order::Forward, 5), [0, 1, 2, 3, 4]);
        assert_eq!(arranged(Order::Reverse, 5), [4, 3, 2, 1, 0]);
        assert_eq!(arranged(Order::Halves, 5), [0, 3, 1, 4, 2]);
        assert_eq!(arranged(Order::Halves, 6), [0, 3, 1, 4, 2, 5]);
        let mut random = arranged(Order::Random, 50);
        assert!(!random.is_sorted());
        random.sort_unstable();
        assert_eq!(random, (0..50).collect::<Vec<_>>());
    }
}
