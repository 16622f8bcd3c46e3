// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loaded into QEMU (LD_PRELOAD), so that nothing of the host reaches the guest. With `-icount sleep=off`, two things do
 * (QEMU 7.2; functions in brackets are QEMU's):
 *
 * - The main loop moves an idle guest's clock to the next timer, and the vCPU's thread executes instructions until the
 *   next timer. Each reads, without a lock, what the other one changes: the main loop, whether the vCPU is halted, when
 *   its last instructions are not in the clock yet (icount_start_warp_timer); the vCPU, how far the next timer is, when
 *   the clock is about to be moved (icount_prepare_for_run). Where the host takes the CPU from a thread in between, the
 *   guest's timers come late.
 *
 *   So the two take turns here. The vCPU's turn ends when it waits to be woken, and the main loop's when it polls. It
 *   polls only when it has its turn again: by then the vCPU has told it that it is idle.
 *
 * - The emulated TLB is resized by how much of it was used in the last 100 ms of the host's clock
 *   (tlb_mmu_resize_locked). A larger TLB keeps more entries, and Linux does not flush those that forbid more than the
 *   page table does by now: it handles the page fault if there is one. So the guest executes different instructions.
 *
 *   The vCPU's thread gets a clock here that advances by the same step whenever it is read.
 *
 * QEMU's big lock is the mutex that its main thread waits with; the vCPU's thread is the other one that waits with it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Written to the standard error when all of this is in force; turns.rs looks for it. */
#define SIGN "QEMU's threads take turns\n"

#define CLOCK_START INT64_C(7258118400000000)	/* us since 1970: later than TLBs that were made by a host's clock */
#define CLOCK_STEP 10			/* us; about the time between two flushes of a TLB */
#define KERNEL_SIGSET 8			/* bytes */

enum turn { MAIN_LOOP, VCPU };

static _Atomic uint32_t turn = MAIN_LOOP;
static pthread_t main_thread;
static pid_t main_id;
static pthread_mutex_t *big_lock;
static pthread_cond_t *vcpu_event;	/* what the vCPU's thread waits for, once it has */
static bool vcpu_is_called;		/* while the main loop has its turn */
static atomic_bool has_polled;		/* the main loop */
static __thread bool is_vcpu;

__attribute__((constructor)) static void begin(void)
{
	main_thread = pthread_self();
	main_id = getpid();
}

/* What the C library calls by this name; other architectures have other versions of it. */
static void *original(const char *name)
{
	void *function = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");

	return function ? function : dlsym(RTLD_NEXT, name);
}

static bool is_main(void)
{
	return pthread_equal(pthread_self(), main_thread);
}

static void give_turn(enum turn to)
{
	atomic_store(&turn, to);
	syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wait_for_turn(enum turn mine)
{
	uint32_t now;

	while ((now = atomic_load(&turn)) != mine)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
}

static void wake_called_vcpu(void)
{
	if (!vcpu_is_called)
		return;
	vcpu_is_called = false;
	give_turn(VCPU);
}

/*
 * Whoever wakes the vCPU changes what it waits for under the big lock. The turn goes first: once the lock is free, the main thread may
 * give it back at any time.
 */
static int wait_as_vcpu(pthread_cond_t *event, pthread_mutex_t *lock)
{
	is_vcpu = true;
	vcpu_event = event;
	give_turn(MAIN_LOOP);
	pthread_mutex_unlock(lock);
	wait_for_turn(VCPU);
	return pthread_mutex_lock(lock);
}

int pthread_cond_wait(pthread_cond_t *event, pthread_mutex_t *lock)
{
	static int (*wait)(pthread_cond_t *, pthread_mutex_t *);

	if (is_main()) {
		if (!vcpu_event)
			big_lock = lock;
		wake_called_vcpu();	/* it may be what the main thread waits for */
	} else if (lock == big_lock) {
		return wait_as_vcpu(event, lock);
	}
	if (!wait)
		wait = original("pthread_cond_wait");
	return wait(event, lock);
}

int pthread_cond_broadcast(pthread_cond_t *event)
{
	static int (*broadcast)(pthread_cond_t *);

	if (event == vcpu_event) {
		if (is_main())
			vcpu_is_called = true;
		else
			give_turn(VCPU);
		return 0;
	}
	if (!broadcast)
		broadcast = original("pthread_cond_broadcast");
	return broadcast(event);
}

/* The main loop polls without the big lock. Polled with it, something in the main loop's turn waits for a file, as at QEMU's end. */
static bool is_in_main_loop(void)
{
	return is_main() && !(big_lock && big_lock->__data.__owner == main_id);
}

int ppoll(struct pollfd *files, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec left;

	if (is_in_main_loop()) {
		has_polled = true;
		wake_called_vcpu();
		wait_for_turn(MAIN_LOOP);
	}
	if (timeout)
		left = *timeout;	/* the kernel writes to it */
	return syscall(SYS_ppoll, files, count, timeout ? &left : NULL, mask, KERNEL_SIGSET);
}

/* What ppoll is called in programs that are compiled with _FORTIFY_SOURCE. */
int __ppoll_chk(struct pollfd *files, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t size)
{
	(void)size;
	return ppoll(files, count, timeout, mask);
}

/* Microseconds since 1970; in the vCPU's thread on a clock of its own. */
int64_t g_get_real_time(void)
{
	static int64_t vcpu_clock = CLOCK_START;
	static bool has_signed;
	struct timespec now;

	if (!is_vcpu) {
		clock_gettime(CLOCK_REALTIME, &now);
		return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
	}
	if (!has_signed && has_polled)
		has_signed = write(STDERR_FILENO, SIGN, sizeof(SIGN) - 1) > 0;
	return vcpu_clock += CLOCK_STEP;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int64_t microseconds = g_get_real_time();

	(void)zone;
	now->tv_sec = microseconds / 1000000;
	now->tv_usec = microseconds % 1000000;
	return 0;
}
