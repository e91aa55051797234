//! Log-linear histogram buckets: four to an octave, from 256 ns to 36 minutes.

/// Buckets of a fine histogram.
pub const BUCKETS: usize = 128;
/// Nanoseconds are shifted right by this before bucketing: finer steps mean nothing for block I/O.
pub const SHIFT: u32 = 8;

/// The bucket of a duration in nanoseconds. Durations past the last bucket are put into it.
#[inline(always)]
pub const fn bucket(ns: u64) -> u32 {
    let v = ns >> SHIFT;
    if v < 4 {
        return v as u32;
    }
    if v >> 33 != 0 {
        return BUCKETS as u32 - 1;
    }
    let e = log2(v);
    let sub = (v >> (e - 2)) & 3;
    let idx = (e - 1) * 4 + sub as u32;
    if idx as usize >= BUCKETS {
        BUCKETS as u32 - 1
    } else {
        idx
    }
}

/// The smallest duration in nanoseconds that falls into this bucket.
#[inline(always)]
pub const fn lower_bound(idx: u32) -> u64 {
    if idx < 4 {
        return (idx as u64) << SHIFT;
    }
    let e = idx / 4 + 1;
    let sub = (idx % 4) as u64;
    ((4 + sub) << (e - 2)) << SHIFT
}

/// Position of the highest set bit; 0 for 0. Written as a ladder because the BPF target has no
/// instruction for it and the generic expansion is longer.
#[inline(always)]
const fn log2(mut v: u64) -> u32 {
    let mut e = 0;
    if v >> 32 != 0 {
        v >>= 32;
        e += 32;
    }
    if v >> 16 != 0 {
        v >>= 16;
        e += 16;
    }
    if v >> 8 != 0 {
        v >>= 8;
        e += 8;
    }
    if v >> 4 != 0 {
        v >>= 4;
        e += 4;
    }
    if v >> 2 != 0 {
        v >>= 2;
        e += 2;
    }
    if v >> 1 != 0 {
        e += 1;
    }
    e
}

/// The value at or below which `permille` thousandths of the samples lie, as the middle of its bucket,
/// in nanoseconds. `None` for an empty histogram: no sample is not 0 ns.
pub fn percentile(counts: &[u64], permille: u64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    // The nearest-rank definition, so that one sample is its own p50 and p99.
    let rank = (total * permille).div_ceil(1000).clamp(1, total);
    let mut seen = 0;
    let mut at = 0;
    for (i, n) in counts.iter().enumerate() {
        seen += n;
        if *n > 0 {
            at = i as u32;
        }
        if seen >= rank {
            break;
        }
    }
    Some((lower_bound(at) + lower_bound(at + 1)) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(255), 0);
        assert_eq!(bucket(256), 1);
        assert_eq!(bucket(u64::MAX), BUCKETS as u32 - 1);
        assert_eq!(percentile(&[0; BUCKETS], 500), None);
    }

    #[test]
    fn a_single_sample_is_every_percentile() {
        let mut h = [0u64; BUCKETS];
        h[bucket(1_000_000) as usize] = 1;
        let p50 = percentile(&h, 500).unwrap();
        assert_eq!(percentile(&h, 990), Some(p50));
        assert!((875_000..=1_125_000).contains(&p50), "{p50}");
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(ns in 0u64..(1 << 41)) {
            let b = bucket(ns);
            prop_assert!(lower_bound(b) <= ns);
            if (b as usize) < BUCKETS - 1 {
                prop_assert!(ns < lower_bound(b + 1));
            }
        }

        #[test]
        fn buckets_grow_with_the_value(a in any::<u64>(), b in any::<u64>()) {
            let (lo, hi) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(bucket(lo) <= bucket(hi));
        }
    }
}
