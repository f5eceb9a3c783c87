/* Preloaded into an Envoy, this breaks the clock of the native filter, and of nothing else, while the file is there that
 * WEIR_BROKEN_CLOCK names. Rust's standard library panics where it reads a clock that is broken. Once the file is there that
 * WEIR_STEPPED_CLOCK names, the monotonic clock of the whole Envoy has stepped back by five minutes, or by half of what it read
 * if that is less. */
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
  long result = syscall(SYS_clock_gettime, clock, now);
  const char *stepped = getenv("WEIR_STEPPED_CLOCK");
  if (stepped && clock == CLOCK_MONOTONIC && access(stepped, F_OK) == 0) {
    static long step;
    if (step == 0) step = now->tv_sec > 600 ? 300 : now->tv_sec / 2;
    now->tv_sec -= step;
  }
  return result;
}
