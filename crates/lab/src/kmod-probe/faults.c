// SPDX-License-Identifier: GPL-2.0
/*
 * See faults.h. Each of these goes unnoticed on a stock kernel, nearly always; the checker that finds it is named.
 * Function names begin with that of the module, for they are what a report tells.
 */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "faults.h"

static DEFINE_SPINLOCK(first_lock);
static DEFINE_SPINLOCK(second_lock);
static int __rcu *shared;

/* KASAN. Volatile, or the compiler would leave the access out. */
static noinline void tarn_probe_use_after_free(void)
{
	volatile int *memory = kmalloc(sizeof(*memory), GFP_KERNEL);

	if (!memory)
		return;
	kfree((void *)memory);
	(void)*memory;
}

/* kmemleak. Several, because a pointer left over on a stack hides one. */
static noinline void tarn_probe_leak(void)
{
	unsigned int i;

	for (i = 0; i < 16; i++) {
		void *memory = kmalloc(64, GFP_KERNEL);

		OPTIMIZER_HIDE_VAR(memory);
	}
}

/* DEBUG_ATOMIC_SLEEP. */
static noinline void tarn_probe_sleep(void)
{
	spin_lock(&first_lock);
	might_sleep();
	spin_unlock(&first_lock);
}

/* lockdep: no processor waits here, but two could for each other. */
static noinline void tarn_probe_deadlock(void)
{
	spin_lock(&first_lock);
	spin_lock(&second_lock);
	spin_unlock(&second_lock);
	spin_unlock(&first_lock);
	spin_lock(&second_lock);
	spin_lock(&first_lock);
	spin_unlock(&first_lock);
	spin_unlock(&second_lock);
}

/* PROVE_RCU. */
static noinline void tarn_probe_rcu(void)
{
	(void)rcu_dereference(shared);
}

static const struct {
	const char *name;
	void (*commit)(void);
} faults[] = {
	{ "use-after-free", tarn_probe_use_after_free },
	{ "leak", tarn_probe_leak },
	{ "sleep", tarn_probe_sleep },
	{ "deadlock", tarn_probe_deadlock },
	{ "rcu", tarn_probe_rcu },
};

int fault_commit(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		if (!strcmp(faults[i].name, name)) {
			faults[i].commit();
			return 0;
		}
	}
	return -EINVAL;
}
