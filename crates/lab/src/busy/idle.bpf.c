// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts how long all CPUs have been asleep at once: the time that the lab's clock skips.
 *
 * A CPU of the virtual machine sleeps in the HLT of the idle loop. The tracepoint cpu_idle stands right before it, and
 * what ends it is an interrupt, whose tracepoint stands right after its entry. So from the one to the other this CPU
 * executes nothing but the few instructions of the way there (some 200), and everything that interrupts and softirqs do
 * in idle time is left out. With several CPUs the clock is skipped ahead only while each of them sleeps.
 *
 * The kernel's own idle time would not do: until 7.0 it can be had exactly (/proc/timer_list), but from 7.1 on it
 * contains the interrupts, and neither tells how much of it several CPUs spent asleep together.
 *
 * While no CPU goes to sleep none of this runs.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* More than the lab ever has; a power of two, so that a mask keeps the verifier content. */
#define MAX_CPUS 64

/* The state that the tracepoint cpu_idle shows when a CPU leaves idle (PWR_EVENT_EXIT, include/trace/events/power.h). */
#define LEAVES_IDLE ((__u32)-1)

/* Number of CPUs, set before the program is loaded. */
const volatile __u32 cpus = 1;

/* How long all CPUs have been asleep at once, and how often that began; read by the lab through the mapped section. */
__u64 idle_ns;
__u64 sleeps;

/* When the last CPU to go to sleep did, and how many sleep. */
static __u64 since_ns;
static __u32 asleep;
static bool asleep_here[MAX_CPUS];

static __always_inline void fall_asleep(__u32 cpu)
{
	if (asleep_here[cpu])
		return;
	asleep_here[cpu] = true;
	/*
	 * Written before the count, so that whoever finds all asleep finds the time too. Interrupts are off here: this
	 * CPU cannot wake up in between.
	 */
	since_ns = bpf_ktime_get_ns();
	__sync_fetch_and_add(&asleep, 1);
}

static __always_inline void wake_up(__u32 cpu)
{
	__u64 since = since_ns;

	if (!asleep_here[cpu])
		return;
	asleep_here[cpu] = false;
	/* Only the first to wake up finds all asleep; it read the time of the last to fall asleep before. */
	if (__sync_fetch_and_add(&asleep, -1) != cpus)
		return;
	__sync_fetch_and_add(&idle_ns, bpf_ktime_get_ns() - since);
	__sync_fetch_and_add(&sleeps, 1);
}

static __always_inline __u32 this_cpu(void)
{
	return bpf_get_smp_processor_id() & (MAX_CPUS - 1);
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(at_cpu_idle, unsigned int state)
{
	if (state == LEAVES_IDLE)
		wake_up(this_cpu());
	else
		fall_asleep(this_cpu());
	return 0;
}

/* The interrupts that end a CPU's sleep. One that is missing here counts as idle until the CPU leaves idle. */
#define WAKES_UP(interrupt)			\
	SEC("tp_btf/" #interrupt "_entry")	\
	int BPF_PROG(at_##interrupt)		\
	{					\
		wake_up(this_cpu());		\
		return 0;			\
	}

WAKES_UP(local_timer)
WAKES_UP(reschedule)
WAKES_UP(call_function)
WAKES_UP(call_function_single)
WAKES_UP(irq_work)
WAKES_UP(irq_handler)

char LICENSE[] SEC("license") = "GPL";
