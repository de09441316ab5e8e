//! The times at which pods were bound, and the rate that follows from them. Without I/O.

/// The times at which bindings were observed, in order.
#[derive(Default)]
pub struct Pace {
    micros: Vec<i64>,
}

impl Pace {
    pub fn add(&mut self, at_micros: i64) {
        self.micros.push(at_micros);
    }

    pub fn count(&self) -> usize {
        self.micros.len()
    }

    /// `5000 pods on 1000 nodes bound in 1.00 s: 5000 pods/s`, or `None` without a binding.
    pub fn summary(&self, nodes: usize) -> Option<String> {
        let (first, last) = (self.micros.first()?, self.micros.last()?);
        let seconds = (last - first) as f64 / 1e6;
        let rate = match seconds > 0.0 {
            // From the first to the last there is one interval less than there are bindings.
            true => (self.count() - 1) as f64 / seconds,
            false => 0.0,
        };
        Some(format!(
            "{} pods on {nodes} nodes bound in {seconds:.2} s: {rate:.0} pods/s",
            self.count()
        ))
    }

    /// The number of bindings in each second.
    pub fn by_second(&self) -> String {
        let Some(first) = self.micros.first() else {
            return "No pod was bound.".to_string();
        };
        let mut counts: Vec<usize> = Vec::new();
        for at in &self.micros {
            let second = usize::try_from((at - first) / 1_000_000).unwrap_or(0);
            counts.resize(counts.len().max(second + 1), 0);
            counts[second] += 1;
        }
        let shown = counts.len().min(60);
        let texts: Vec<String> = counts[..shown].iter().map(usize::to_string).collect();
        let more = if counts.len() > shown { " ..." } else { "" };
        format!("Pods bound in each second: {}{more}", texts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_number_of_intervals_per_second() {
        let mut pace = Pace::default();
        assert_eq!(pace.summary(3), None);
        for index in 0..5 {
            pace.add(7_000_000 + index * 500_000);
        }
        assert_eq!(
            pace.summary(3).unwrap(),
            "5 pods on 3 nodes bound in 2.00 s: 2 pods/s"
        );
        assert_eq!(pace.by_second(), "Pods bound in each second: 2 2 1");
    }
}
