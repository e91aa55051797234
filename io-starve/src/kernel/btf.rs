//! The running kernel's type information: where a member is, what a flag's number is, what a tracepoint is given.
//!
//! In: the bytes of /sys/kernel/btf/vmlinux. Out: answers by name. The bytes are walked in place and dropped after
//! loading: the kept crate for this builds 85 MB of types in 250 ms for what is asked here in a few milliseconds.
//! Format: Documentation/bpf/btf.rst. Every read is checked; a broken file is an error, never a panic.

use std::path::Path;

/// Why type information cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BtfError {
    /// There is none.
    #[error(
        "this kernel has no type information ({0}); io-starve needs a kernel built with CONFIG_DEBUG_INFO_BTF"
    )]
    Missing(String),
    /// It is there, and not for this user.
    #[error("not permitted to read the kernel's type information ({0}); try `sudo io-starve`")]
    NotPermitted(String),
    /// It is damaged.
    #[error(
        "the kernel's type information is damaged ({0}); compare with `bpftool btf dump file /sys/kernel/btf/vmlinux`"
    )]
    Broken(&'static str),
}

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// Types nest, but not deeper than this in any kernel; a cycle in a broken file ends here.
const MAX_DEPTH: u32 = 32;

/// Parsed type information: the file and where each type begins in it.
pub struct Btf {
    data: Vec<u8>,
    strings: usize,
    /// Offset of each type; type ids begin at 1.
    types: Vec<u32>,
}

struct Type {
    at: usize,
    name: u32,
    kind: u32,
    vlen: u32,
    kind_flag: bool,
    size_or_type: u32,
}

impl Btf {
    /// Where the running kernel keeps it.
    pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is not little-endian type information.
    pub fn open(path: &Path) -> Result<Btf, BtfError> {
        let data = std::fs::read(path).map_err(|e| {
            let what = format!("{}: {e}", path.display());
            match e.kind() {
                std::io::ErrorKind::PermissionDenied => BtfError::NotPermitted(what),
                _ => BtfError::Missing(what),
            }
        })?;
        Btf::parse(data)
    }

    /// Takes the bytes of such a file.
    ///
    /// # Errors
    ///
    /// When they are not little-endian type information.
    pub fn parse(data: Vec<u8>) -> Result<Btf, BtfError> {
        let word = |at: usize| read_u32(&data, at).ok_or(BtfError::Broken("the header is cut"));
        if data.get(..2) != Some(&[0x9f, 0xeb]) {
            return Err(BtfError::Broken("no magic number"));
        }
        let header = word(4)? as usize;
        let begin = header.saturating_add(word(8)? as usize);
        let end = begin.saturating_add(word(12)? as usize);
        let strings = header.saturating_add(word(16)? as usize);
        if end > data.len() || strings > data.len() || begin > u32::MAX as usize {
            return Err(BtfError::Broken("a section lies outside the file"));
        }
        let mut types = Vec::new();
        let mut at = begin;
        while at < end {
            types.push(at as u32);
            let t = read_type(&data, at).ok_or(BtfError::Broken("a type is cut"))?;
            let extra = match t.kind {
                KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                KIND_ARRAY => 12,
                KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * t.vlen as usize,
                KIND_ENUM | KIND_FUNC_PROTO => 8 * t.vlen as usize,
                1..=KIND_ENUM64 => 0,
                _ => return Err(BtfError::Broken("a type of unknown kind")),
            };
            at += 12 + extra;
        }
        Ok(Btf {
            data,
            strings,
            types,
        })
    }

    fn get(&self, id: u32) -> Option<Type> {
        let at = *self.types.get((id as usize).checked_sub(1)?)?;
        read_type(&self.data, at as usize)
    }

    fn string(&self, offset: u32) -> &[u8] {
        let rest = self
            .data
            .get(self.strings.saturating_add(offset as usize)..)
            .unwrap_or_default();
        rest.split(|b| *b == 0).next().unwrap_or_default()
    }

    fn all(&self) -> impl Iterator<Item = Type> + '_ {
        self.types
            .iter()
            .filter_map(|at| read_type(&self.data, *at as usize))
    }

    /// Offset in bytes of a member, through unnamed structs and unions; `a.b` goes into a struct. `None`: this
    /// kernel has no such struct or member, or the member is a bit field.
    pub fn offset(&self, of: &str, member: &str) -> Option<u32> {
        self.all()
            .filter(|t| matches!(t.kind, KIND_STRUCT | KIND_UNION) && t.vlen > 0)
            .filter(|t| self.string(t.name) == of.as_bytes())
            .find_map(|t| self.path(&t, member, 0))
    }

    fn path(&self, of: &Type, member: &str, depth: u32) -> Option<u32> {
        let (first, rest) = member
            .split_once('.')
            .map_or((member, None), |(a, b)| (a, Some(b)));
        let (bits, type_id) = self.member(of, first, depth)?;
        if bits % 8 != 0 {
            return None;
        }
        let here = bits / 8;
        match rest {
            None => Some(here),
            Some(rest) => {
                let inner = self.resolve(type_id)?;
                Some(here + self.path(&inner, rest, depth + 1)?)
            }
        }
    }

    /// (offset in bits, type) of a direct member, or of one of an unnamed member.
    fn member(&self, of: &Type, name: &str, depth: u32) -> Option<(u32, u32)> {
        if depth > MAX_DEPTH || !matches!(of.kind, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        for i in 0..of.vlen as usize {
            let at = of.at + 12 + 12 * i;
            let member_name = self.string(read_u32(&self.data, at)?);
            let type_id = read_u32(&self.data, at + 4)?;
            let raw = read_u32(&self.data, at + 8)?;
            // With the kind flag the upper byte is the width of a bit field.
            let (bits, width) = if of.kind_flag {
                (raw & 0xff_ffff, raw >> 24)
            } else {
                (raw, 0)
            };
            if member_name == name.as_bytes() {
                return (width == 0).then_some((bits, type_id));
            }
            if member_name.is_empty()
                && let Some(inner) = self.resolve(type_id)
                && let Some((more, id)) = self.member(&inner, name, depth + 1)
            {
                return Some((bits + more, id));
            }
        }
        None
    }

    /// The type below typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<Type> {
        for _ in 0..MAX_DEPTH {
            let t = self.get(id)?;
            match t.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    id = t.size_or_type;
                }
                _ => return Some(t),
            }
        }
        None
    }

    /// Value of an enumerator, whichever enum it is in (`enum req_op` was `req_opf` before 6.0).
    pub fn enumerator(&self, name: &str) -> Option<u32> {
        for t in self.all() {
            let step = match t.kind {
                KIND_ENUM => 8,
                KIND_ENUM64 => 12,
                _ => continue,
            };
            for i in 0..t.vlen as usize {
                let at = t.at + 12 + step * i;
                if self.string(read_u32(&self.data, at)?) == name.as_bytes() {
                    return read_u32(&self.data, at + 4);
                }
            }
        }
        None
    }

    /// True when the kernel has a function of this name that was not inlined away everywhere.
    pub fn has_function(&self, name: &str) -> bool {
        self.all()
            .any(|t| t.kind == KIND_FUNC && self.string(t.name) == name.as_bytes())
    }

    /// How many arguments this tracepoint has, by its `btf_trace_` typedef, without the leading `void *`. `None`:
    /// this kernel does not have it built in.
    pub fn tracepoint_args(&self, name: &str) -> Option<u32> {
        let wanted = format!("btf_trace_{name}");
        let t = self
            .all()
            .find(|t| t.kind == KIND_TYPEDEF && self.string(t.name) == wanted.as_bytes())?;
        let pointer = self.resolve(t.size_or_type)?;
        if pointer.kind != KIND_PTR {
            return None;
        }
        let proto = self.resolve(pointer.size_or_type)?;
        (proto.kind == KIND_FUNC_PROTO).then(|| proto.vlen.saturating_sub(1))
    }
}

fn read_u32(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn read_type(data: &[u8], at: usize) -> Option<Type> {
    let info = read_u32(data, at.checked_add(4)?)?;
    Some(Type {
        at,
        name: read_u32(data, at)?,
        kind: info >> 24 & 0x1f,
        vlen: info & 0xffff,
        kind_flag: info >> 31 == 1,
        size_or_type: read_u32(data, at.checked_add(8)?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a small file: strings are collected, types are appended as words.
    #[derive(Default)]
    struct Builder {
        strings: Vec<u8>,
        types: Vec<u8>,
    }

    impl Builder {
        fn name(&mut self, s: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            let at = self.strings.len() as u32;
            self.strings.extend_from_slice(s.as_bytes());
            self.strings.push(0);
            at
        }
        fn words(&mut self, words: &[u32]) -> &mut Self {
            for w in words {
                self.types.extend_from_slice(&w.to_le_bytes());
            }
            self
        }
        fn build(&self) -> Vec<u8> {
            let mut out = vec![0x9f, 0xeb, 1, 0];
            for w in [
                24,
                0,
                self.types.len() as u32,
                self.types.len() as u32,
                self.strings.len() as u32,
            ] {
                out.extend_from_slice(&w.to_le_bytes());
            }
            out.extend_from_slice(&self.types);
            out.extend_from_slice(&self.strings);
            out
        }
    }

    fn sample() -> Vec<u8> {
        let mut b = Builder::default();
        let (iter, sector, size, bio, opf, anon_in) = (
            b.name("bvec_iter"),
            b.name("bi_sector"),
            b.name("bi_size"),
            b.name("bio"),
            b.name("bi_opf"),
            b.name("bi_blkg"),
        );
        let (int, op, write, trace, bit) = (
            b.name("int"),
            b.name("req_op"),
            b.name("REQ_OP_WRITE"),
            b.name("btf_trace_block_getrq"),
            b.name("flag"),
        );
        let (it, function) = (b.name("bi_iter"), b.name("submit_bio"));
        let s = |kind: u32, vlen: u32| kind << 24 | vlen;
        b.words(&[int, s(KIND_INT, 0), 4, 32]); // 1
        b.words(&[iter, s(KIND_STRUCT, 2), 16, sector, 1, 0, size, 1, 64]); // 2
        b.words(&[0, s(KIND_UNION, 1), 8, anon_in, 1, 0]); // 3
        b.words(&[
            bio,
            s(KIND_STRUCT, 4) | 1 << 31,
            64,
            opf,
            1,
            32,
            it,
            2,
            128,
            0,
            3,
            320,
            bit,
            1,
            3 | 1 << 24,
        ]); // 4
        b.words(&[op, s(KIND_ENUM, 1), 4, write, 1]); // 5
        b.words(&[0, s(KIND_FUNC_PROTO, 2), 0, 0, 1, 0, 1]); // 6
        b.words(&[0, s(KIND_PTR, 0), 6]); // 7
        b.words(&[trace, s(KIND_TYPEDEF, 0), 7]); // 8
        b.words(&[function, s(KIND_FUNC, 0), 6]); // 9
        b.build()
    }

    #[test]
    fn answers_by_name() {
        let b = Btf::parse(sample()).unwrap();
        assert_eq!(b.offset("bio", "bi_opf"), Some(4));
        assert_eq!(b.offset("bio", "bi_iter.bi_size"), Some(24));
        assert_eq!(
            b.offset("bio", "bi_blkg"),
            Some(40),
            "through an unnamed union"
        );
        assert_eq!(
            b.offset("bio", "flag"),
            None,
            "a bit field has no byte offset"
        );
        assert_eq!(b.offset("bio", "rq_disk"), None);
        assert_eq!(b.offset("gendisk", "queue"), None);
        assert_eq!(b.enumerator("REQ_OP_WRITE"), Some(1));
        assert_eq!(b.enumerator("REQ_OP_NOPE"), None);
        assert_eq!(b.tracepoint_args("block_getrq"), Some(1));
        assert_eq!(b.tracepoint_args("block_rq_tag_wait"), None);
        assert!(b.has_function("submit_bio") && !b.has_function("bi_iter"));
    }

    #[test]
    fn damage_has_a_sentence() {
        assert!(matches!(
            Btf::parse(vec![1, 2, 3]),
            Err(BtfError::Broken(_))
        ));
        let mut cut = sample();
        cut.truncate(40);
        assert!(matches!(Btf::parse(cut), Err(BtfError::Broken(_))));
        let missing = Btf::open(Path::new("/nonexistent/btf")).err().unwrap();
        assert!(missing.to_string().contains("CONFIG_DEBUG_INFO_BTF"));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(at in 0usize..400, byte in any::<u8>(), cut in 0usize..400) {
            let mut data = sample();
            if let Some(b) = data.get_mut(at) {
                *b = byte;
            }
            data.truncate(data.len().saturating_sub(cut));
            if let Ok(b) = Btf::parse(data) {
                let _ = b.offset("bio", "bi_iter.bi_size");
                let _ = b.offset("bio", "bi_blkg");
                let _ = b.enumerator("REQ_OP_WRITE");
                let _ = b.tracepoint_args("block_getrq");
            }
        }
    }
}
