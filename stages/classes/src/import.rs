//! `tarn classes import`: a table of customers, each to the class that the business's rule gives it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::config::{Column, Import};
use super::network::Network;
use tarn_base::network::Prefix;
use tarn_base::wrong::Wrong;

mod effect;

pub use effect::{Changed, Counts, Effect, Removed};

/// A line that is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Customer {
    /// The line's number, from 1.
    pub line: usize,
    /// The customer's addresses.
    pub network: Network,
    /// The class's number.
    pub class: usize,
}

/// What a file comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The customers, in order.
    pub customers: Vec<Customer>,
    /// Lines that are wrong: their number, and why.
    pub wrong: Vec<(usize, String)>,
}

impl Import {
    /// The class of a customer with this value: the first whose threshold it reaches; the last takes the rest.
    pub fn class(&self, value: u64) -> usize {
        let reached = self.thresholds.iter().position(|threshold| value >= *threshold);
        reached.unwrap_or(self.thresholds.len())
    }
}

/// Reads a table of comma-separated values, with a header that names the columns: `address`, and `months` or `spending`
/// as `import` says; others are ignored. Changes nothing.
///
/// # Errors
/// A header without these columns.
pub fn plan(text: &str, import: &Import) -> Result<Plan, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines
        .next()
        .ok_or("the file is empty: its first line names the columns")?;
    let columns = Columns::read(header.trim_start_matches('\u{feff}'), import.by)?;
    let mut plan = Plan::default();
    for (index, text) in lines {
        let line = index + 1;
        match columns.read_line(text, import) {
            Ok((network, class)) => plan.customers.push(Customer { line, network, class }),
            Err(wrong) => plan.wrong.push((line, wrong)),
        }
    }
    plan.take_repeated_out();
    Ok(plan)
}

impl Plan {
    /// A line with a prefix that an earlier line has is wrong, unless that one is wrong itself.
    fn take_repeated_out(&mut self) {
        let repeated = repeated(&self.customers);
        let mut claimed: BTreeMap<Prefix, usize> = BTreeMap::new();
        let wrong = &mut self.wrong;
        self.customers.retain(|customer| {
            let own = || {
                let prefixes = customer.network.prefixes();
                prefixes.filter(|prefix| repeated.binary_search(prefix).is_ok())
            };
            let before = own().find_map(|prefix| Some((prefix, *claimed.get(&prefix)?)));
            match before {
                None => claimed.extend(own().map(|prefix| (prefix, customer.line))),
                Some((prefix, line)) => {
                    let text = format!("{} stands on line {line} already", Network::from(prefix));
                    wrong.push((customer.line, text));
                }
            }
            before.is_none()
        });
        wrong.sort_by_key(|(line, _)| *line);
    }
}

/// The prefixes that several customers have, sorted. Of a million customers, few have any.
fn repeated(customers: &[Customer]) -> Vec<Prefix> {
    let customers = customers.iter();
    let mut all: Vec<Prefix> = customers.flat_map(|customer| customer.network.prefixes()).collect();
    all.sort_unstable();
    let same = all.chunk_by(|one, other| one == other);
    same.filter(|same| same.len() > 1).map(|same| same[0]).collect()
}

/// Where a line has what.
struct Columns {
    address: usize,
    value: usize,
    count: usize,
}

impl Columns {
    fn read(header: &str, by: Column) -> Result<Self, String> {
        let header = fields(header)?;
        let column = |name: &str| {
            let found = header.iter().position(|field| field.eq_ignore_ascii_case(name));
            found.ok_or_else(|| {
                format!(
                    "there is no column '{name}': the first line names the columns, as in address,{}",
                    by.name()
                )
            })
        };
        Ok(Self {
            address: column("address")?,
            value: column(by.name())?,
            count: header.len(),
        })
    }

    fn read_line(&self, line: &str, import: &Import) -> Result<(Network, usize), String> {
        let fields = fields(line)?;
        // A comma in a value that has no quotes would move the values behind it into other columns.
        if fields.iter().skip(self.count).any(|field| !field.is_empty()) {
            let (found, count) = (fields.len(), self.count);
            return Err(format!(
                "{found} fields, but {count} columns: put quotes around a value that has a comma in it"
            ));
        }
        let field = |at: usize| fields.get(at).map(Cow::as_ref).unwrap_or_default();
        client(field(self.address), field(self.value), import)
    }
}

fn client(address: &str, value: &str, import: &Import) -> Result<(Network, usize), String> {
    let network: Network = address.parse().map_err(|wrong: Wrong| wrong.to_string())?;
    let number = amount(value, import.by).ok_or_else(|| format!("'{value}' is no number of {}", unit(import.by)))?;
    Ok((network, import.class(number)))
}

fn unit(by: Column) -> &'static str {
    match by {
        Column::Months => "months",
        Column::Spending => "units of money spent",
    }
}

/// A whole number; a fraction of a unit reaches no threshold and is left off. Money may be grouped: `1,000,000`.
fn amount(text: &str, by: Column) -> Option<u64> {
    let text: String = match by {
        Column::Months => text.to_owned(),
        Column::Spending => text.chars().filter(|c| !matches!(c, ',' | '_' | '\'')).collect(),
    };
    let whole = match text.split_once('.') {
        Some((whole, fraction)) if fraction.chars().all(|c| c.is_ascii_digit()) => whole,
        Some(_) => return None,
        None => &text,
    };
    whole.parse().ok()
}

/// The fields of a line: without spaces around them, and without the quotes, in which a comma is no separator (RFC 4180).
///
/// # Errors
/// A quote that is not closed.
fn fields(line: &str) -> Result<Vec<Cow<'_, str>>, String> {
    if !line.contains('"') {
        return Ok(line.split(',').map(|field| field.trim().into()).collect());
    }
    let (mut fields, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field).trim().to_owned().into()),
            other => field.push(other),
        }
    }
    fields.push(field.trim().to_owned().into());
    match is_quoted {
        true => Err("a quote is not closed".to_owned()),
        false => Ok(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(by: Column, thresholds: &[u64]) -> Import {
        Import {
            by,
            thresholds: thresholds.to_vec(),
        }
    }

    fn classes(plan: &Plan) -> Vec<(String, usize)> {
        let customers = plan.customers.iter();
        customers
            .map(|customer| (customer.network.to_string(), customer.class))
            .collect()
    }

    /// The thesis's first table: A 3 years, B 1 year, C 6 months, D 3 months, E the rest.
    #[test]
    fn customers_by_the_length_of_their_contract() {
        let rule = import(Column::Months, &[36, 12, 6, 3]);
        let text = "address,name,months\n10.0.0.1,Ann,48\n10.0.0.2,Ben,36\n10.0.0.3,Cid,35\n10.0.0.4,Dot,6\n\
                    10.0.0.5,Eva,3\n10.0.0.6,Fay,2\n10.0.0.7,Gus,0\n";
        let plan = plan(text, &rule).unwrap();
        assert_eq!(plan.wrong, []);
        assert_eq!(
            plan.customers.iter().map(|customer| customer.class).collect::<Vec<_>>(),
            [0, 0, 1, 2, 3, 4, 4]
        );
    }

    /// The second: A from 1,000,000 won, B from 500,000, C from 100,000, D from 50,000, E less.
    #[test]
    fn customers_by_what_they_have_spent() {
        let rule = import(Column::Spending, &[1_000_000, 500_000, 100_000, 50_000]);
        let text = "Spending,Address\n\"1,000,000\",10.0.0.1\n999999.99,10.0.0.2\n100000,10.0.0.3\n50000,10.0.0.4\n49999,10.0.0.5\n";
        let plan = plan(text, &rule).unwrap();
        assert_eq!(plan.wrong, []);
        assert_eq!(
            plan.customers.iter().map(|customer| customer.class).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
    }

    /// An operator sees every line that is wrong before anything changes.
    #[test]
    fn wrong_lines_are_told_with_their_numbers() {
        let rule = import(Column::Months, &[12]);
        let text = "address,months\r\n10.0.0.1,12\r\n\r\n10.0.0.300,12\r\n10.0.0.2,many\r\n10.0.0.1,1\r\n10.0.0.0/24,1\r\n10.0.1.1\r\n10.0.0.0-10.0.0.255,1\r\n10.0.0.128/25,1\r\n";
        let plan = plan(text, &rule).unwrap();
        let wrong: Vec<usize> = plan.wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(wrong, [4, 5, 6, 8, 9], "{:?}", plan.wrong);
        assert!(
            plan.wrong[4].1.contains("10.0.0.0/24 stands on line 7"),
            "{:?}",
            plan.wrong
        );
        // A network has its own class whatever the one around it has.
        let expected = [("10.0.0.1", 0), ("10.0.0.0/24", 1), ("10.0.0.128/25", 1)];
        assert_eq!(
            classes(&plan),
            expected.map(|(network, class)| (network.to_owned(), class))
        );
    }

    /// With `--skip-wrong`, whoever stands on a good line has to have a class.
    #[test]
    fn a_wrong_line_takes_nothing_from_a_later_one() {
        let rule = import(Column::Months, &[12]);
        let text = "address,months\n10.0.0.1,12\n10.0.0.1-10.0.0.2,12\n10.0.0.2,1\n10.0.0.2,12\n";
        let plan = plan(text, &rule).unwrap();
        let wrong = [
            (3, "10.0.0.1 stands on line 2 already"),
            (5, "10.0.0.2 stands on line 4 already"),
        ];
        assert_eq!(plan.wrong, wrong.map(|(line, text)| (line, text.to_owned())));
        let expected = [("10.0.0.1", 0), ("10.0.0.2", 1)];
        assert_eq!(
            classes(&plan),
            expected.map(|(network, class)| (network.to_owned(), class))
        );
    }

    /// Gold would be an unknown customer because of the comma in somebody's name, or in an amount.
    #[test]
    fn a_line_whose_values_moved_is_wrong() {
        let rule = import(Column::Spending, &[1000]);
        let text = "address,spending,name\n10.0.0.1,1,000,Ann\n10.0.0.2,\"1,000\",Ben,,\n10.0.0.3,\"1000\n\
                    10.0.0.4,1000,\"Dot\n10.0.0.5,1000\n";
        let plan = plan(text, &rule).unwrap();
        let told = [
            (
                2,
                "4 fields, but 3 columns: put quotes around a value that has a comma in it",
            ),
            (4, "a quote is not closed"),
            (5, "a quote is not closed"),
        ];
        assert_eq!(plan.wrong, told.map(|(line, told)| (line, told.to_owned())));
        let expected = [("10.0.0.2", 0), ("10.0.0.5", 0)];
        assert_eq!(
            classes(&plan),
            expected.map(|(network, class)| (network.to_owned(), class))
        );
        assert_eq!(plan.customers[1].line, 6);
    }

    #[test]
    fn a_file_without_the_columns_is_refused() {
        let rule = import(Column::Months, &[12]);
        assert!(plan("", &rule).unwrap_err().contains("empty"));
        assert!(
            plan("address,spending\n10.0.0.1,1\n", &rule)
                .unwrap_err()
                .contains("'months'")
        );
    }

    #[test]
    fn quotes_keep_commas() {
        assert_eq!(
            fields("\"a, b\" ,c,\"say \"\"no\"\"\",").unwrap(),
            ["a, b", "c", "say \"no\"", ""]
        );
    }
}
