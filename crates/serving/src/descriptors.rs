//! The process's limit on open files.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit. Returns the soft limit as it was, for children that
/// shall not inherit the new one.
pub fn raise() -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(soft)
}

/// How many descriptors the process may have now. The limit may be changed while it runs.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        let lower = soft.min(hard - 1);
        setrlimit(Resource::RLIMIT_NOFILE, lower, hard).expect("lowered");
        assert_eq!(raise(), Ok(lower));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE), Ok((hard, hard)));
        assert_eq!(limit(), hard);
    }
}
