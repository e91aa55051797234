//! Two programs from one handler: tp_btf with plain loads, and the raw tracepoint for kernels that refuse it.

/// `hook!(handler, BTF_NAME, RAW_NAME, "tracepoint", index of the argument; ...)`.
macro_rules! hook {
    ($handler:ident, $($btf:ident, $raw:ident, $tracepoint:literal, $arg:literal);+ $(;)?) => {$(
        #[aya_ebpf::macros::btf_tracepoint(function = $tracepoint)]
        pub fn $btf(ctx: aya_ebpf::programs::BtfTracePointContext) -> i32 {
            $handler::<true>(ctx.arg::<$crate::kernel::Ptr>($arg));
            0
        }

        #[aya_ebpf::macros::raw_tracepoint(tracepoint = $tracepoint)]
        pub fn $raw(ctx: aya_ebpf::programs::RawTracePointContext) -> i32 {
            $handler::<false>(ctx.arg::<$crate::kernel::Ptr>($arg));
            0
        }
    )+};
}
pub(crate) use hook;
