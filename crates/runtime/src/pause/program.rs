//! The process that holds a pod's namespaces: it reaps what is left to it and ends on SIGTERM or
//! SIGINT. No libc, no allocation, no relocation; built by `build.rs`, not part of the library.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

const SIGINT: usize = 2;
const SIGTERM: usize = 15;
const SIGCHLD: usize = 17;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const WAIT4: usize = 61;
    pub const EXIT_GROUP: usize = 231;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const RT_SIGPROCMASK: usize = 135;
    pub const RT_SIGTIMEDWAIT: usize = 137;
    pub const WAIT4: usize = 260;
    pub const EXIT_GROUP: usize = 94;
}

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "and rsp, -16", "call {main}", main = sym main);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "bl {main}", main = sym main);

/// Signals are blocked and fetched one by one: no handler, no race between looking and sleeping.
extern "C" fn main() -> ! {
    let set: u64 = 1 << (SIGINT - 1) | 1 << (SIGTERM - 1) | 1 << (SIGCHLD - 1);
    let set_address = &raw const set as usize;
    call(number::RT_SIGPROCMASK, [0, set_address, 0, 8]);
    loop {
        match call(number::RT_SIGTIMEDWAIT, [set_address, 0, 0, 8]) {
            signal if signal == SIGTERM as isize || signal == SIGINT as isize => exit(0),
            // 1 is WNOHANG.
            _ => while call(number::WAIT4, [usize::MAX, 0, 1, 0]) > 0 {},
        }
    }
}

fn exit(code: usize) -> ! {
    loop {
        call(number::EXIT_GROUP, [code, 0, 0, 0]);
    }
}

#[cfg(target_arch = "x86_64")]
fn call(number: usize, arguments: [usize; 4]) -> isize {
    let mut result = number as isize;
    // SAFETY: the calls above take integers and the address of a live local.
    unsafe {
        asm!("syscall", inlateout("rax") result, in("rdi") arguments[0], in("rsi") arguments[1],
            in("rdx") arguments[2], in("r10") arguments[3], out("rcx") _, out("r11") _);
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn call(number: usize, arguments: [usize; 4]) -> isize {
    let mut result = arguments[0] as isize;
    // SAFETY: the calls above take integers and the address of a live local.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") result, in("x1") arguments[1],
            in("x2") arguments[2], in("x3") arguments[3]);
    }
    result
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(1)
}
