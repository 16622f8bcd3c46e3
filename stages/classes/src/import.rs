//! `tarn classes import`: a table of customers, each to the class that the business's rule gives it.

use std::collections::HashMap;

use super::config::{Column, Import};
use super::network::Network;
use tarn_base::network::Prefix;
use tarn_base::wrong::Wrong;

/// What a file comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Every address and its class's number.
    pub clients: Vec<(Network, usize)>,
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
    let header = fields(header.trim_start_matches('\u{feff}'));
    let column = |name: &str| {
        let found = header.iter().position(|field| field.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            format!(
                "there is no column '{name}': the first line names the columns, as in address,{}",
                import.by.name()
            )
        })
    };
    let (address, value) = (column("address")?, column(import.by.name())?);
    let mut plan = Plan::default();
    let mut seen: HashMap<Prefix, usize> = HashMap::new();
    for (index, line) in lines {
        let number = index + 1;
        let fields = fields(line);
        let field = |at: usize| fields.get(at).map(String::as_str).unwrap_or_default();
        match client(field(address), field(value), import) {
            Err(wrong) => plan.wrong.push((number, wrong)),
            Ok((network, class)) => {
                let prefixes: Vec<Prefix> = network.prefixes().collect();
                match prefixes.iter().find_map(|prefix| Some((prefix, seen.get(prefix)?))) {
                    Some((prefix, before)) => {
                        let text = format!("{} stands on line {before} already", Network::from(*prefix));
                        plan.wrong.push((number, text));
                    }
                    None => {
                        seen.extend(prefixes.into_iter().map(|prefix| (prefix, number)));
                        plan.clients.push((network, class));
                    }
                }
            }
        }
    }
    Ok(plan)
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
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field).trim().to_owned()),
            other => field.push(other),
        }
    }
    fields.push(field.trim().to_owned());
    fields
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
        plan.clients
            .iter()
            .map(|(network, class)| (network.to_string(), *class))
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
            plan.clients.iter().map(|(_, class)| *class).collect::<Vec<_>>(),
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
            plan.clients.iter().map(|(_, class)| *class).collect::<Vec<_>>(),
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
            fields("\"a, b\" ,c,\"say \"\"no\"\"\","),
            ["a, b", "c", "say \"no\"", ""]
        );
    }
}
