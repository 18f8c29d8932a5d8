import process from "node:process";

/**
 * Program in Python that tries what a contained command must not do, and prints a line for each: its name, and the name of the error or
 * `DONE`. Its arguments are paths of Unix sockets, which it tries to connect to.
 */
export const CALL_PROBE = `
import ctypes, errno, mmap, os, platform, socket, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == "aarch64"
def call(name, number, *args):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(arg) for arg in args])
    print(name, errno.errorcode.get(ctypes.get_errno(), "?") if result < 0 else "DONE")
def tell(name, work):
    try: work(); print(name, "DONE")
    except OSError as error: print(name, errno.errorcode.get(error.errno, error))
def child(name, work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0: work(); sys.stdout.flush(); os._exit(0)
    status = os.waitpid(pid, 0)[1]
    print(name, "KILLED" if os.WIFSIGNALED(status) else "DONE")
KEY_SPEC_SESSION = -3
call("keyctl", 219 if ARM else 250, 0, KEY_SPEC_SESSION, 1)
kind, text = ctypes.create_string_buffer(b"user"), ctypes.create_string_buffer(b"postern:probe")
call("add_key", 217 if ARM else 248, ctypes.addressof(kind), ctypes.addressof(text), ctypes.addressof(text), 4, KEY_SPEC_SESSION)
call("request_key", 218 if ARM else 249, ctypes.addressof(kind), ctypes.addressof(text), 0, KEY_SPEC_SESSION)
room = ctypes.create_string_buffer(256)
call("io_uring_setup", 425, 4, ctypes.addressof(room))
call("bpf", 280 if ARM else 321, 0, ctypes.addressof(room), 72)
child("traced", lambda: call("ptrace", 117 if ARM else 101, 0, 0, 0, 0))
call("userfaultfd", 282 if ARM else 323, 1)
call("perf_event_open", 241 if ARM else 298, ctypes.addressof(room), 0, -1, -1, 0)
call("clone3", 435, 0, 0)
call("TIOCSTI", 29 if ARM else 16, 0, 0x5412 | (1 << 32), ctypes.addressof(text))
child("unshare", lambda: call("userns", 97 if ARM else 272, 0x10000000))
for name, family in [("vsock", 40), ("alg", 38), ("packet", 17), ("tipc", 30)]:
    tell(name, lambda: socket.socket(family, socket.SOCK_SEQPACKET if family == 38 else socket.SOCK_DGRAM))
if not ARM:
    call("x32", 0x40000000 + 39)
    call("x32 socket", 0x40000000 + 41, 1, 1, 0)
    def i386():
        # mov eax, 20 (getpid); int 0x80; ret
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes.fromhex("b814000000cd80c3"))
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    child("i386", i386)
tell("datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
def own():
    server = socket.socket(socket.AF_UNIX); server.bind("/tmp/own.sock"); server.listen()
    socket.socket(socket.AF_UNIX).connect("/tmp/own.sock")
tell("own", own)
for path in sys.argv[1:]:
    tell(path, lambda: socket.socket(socket.AF_UNIX).connect(path))
    def again():
        one, other = socket.socketpair(); other.close(); one.connect(path)
    tell("pair to " + path, again)
def pair(): one, other = socket.socketpair(); one.sendall(b"x"); assert other.recv(1) == b"x"
tell("pair", pair)
def tcp():
    server = socket.create_server(("127.0.0.1", 0)); socket.create_connection(server.getsockname())
tell("tcp", tcp)
tell("thread", lambda: threading.Thread(target=lambda: None).start())
tell("program", lambda: subprocess.run(["/bin/true"], check=True))
def forwarder():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if "forwarder" in open(f"/proc/{pid}/cmdline").read().split("probe")[0]: open(f"/proc/{pid}/mem", "rb+")
tell("forwarder", forwarder)
`;

/** Lines of the probe that a contained command ends with, for sockets that it may not reach. */
export function refusedCalls(...sockets: readonly string[]): readonly string[] {
  return [
    ...[
      "keyctl EPERM",
      "add_key EPERM",
      "request_key EPERM",
      "io_uring_setup ENOSYS",
      "bpf EPERM",
      "ptrace EPERM",
      "traced DONE",
    ],
    ...["userfaultfd EPERM", "perf_event_open EPERM", "clone3 ENOSYS", "TIOCSTI EPERM", "userns EPERM", "unshare DONE"],
    ...["vsock", "alg", "packet", "tipc"].map((name) => `${name} EAFNOSUPPORT`),
    ...(process.arch === "x64" ? ["x32 ENOSYS", "x32 socket ENOSYS", "i386 KILLED"] : []),
    ...["datagrams EAFNOSUPPORT", "own EAFNOSUPPORT"],
    ...sockets.flatMap((path) => [`${path} EAFNOSUPPORT`, `pair to ${path} EISCONN`]),
    ...["pair DONE", "tcp DONE", "thread DONE", "program DONE"],
  ];
}
