/* Preloaded into an Envoy, this breaks the clock of the native filter, and of nothing else, while the file is there that
 * WEIR_BROKEN_CLOCK names. Rust's standard library panics where it reads a clock that is broken. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
  const char *file = getenv("WEIR_BROKEN_CLOCK");
  Dl_info caller;
  if (file && dladdr(__builtin_return_address(0), &caller) && caller.dli_fname &&
      strstr(caller.dli_fname, "libweir_native.so") && access(file, F_OK) == 0) {
    errno = EINVAL;
    return -1;
  }
  return syscall(SYS_clock_gettime, clock, now);
}
