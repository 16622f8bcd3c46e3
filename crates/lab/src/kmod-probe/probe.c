// SPDX-License-Identifier: GPL-2.0
/*
 * A module that does nothing. It proves that the lab builds modules for a suite's kernel, and that the guest
 * loads them: its parameter can be read back, its address comes from a symbol of the running kernel. Asked to, it
 * commits one fault, which proves that a debug kernel finds it.
 */
#include <linux/jiffies.h>
#include <linux/module.h>

#include "faults.h"

static int answer = 42;
module_param(answer, int, 0444);
MODULE_PARM_DESC(answer, "a number that can be read back");

static char *fault;
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "a fault to commit: see faults.c");

static int __init tarn_probe_init(void)
{
	pr_info("loaded at %lu jiffies\n", jiffies);
	return fault ? fault_commit(fault) : 0;
}

static void __exit tarn_probe_exit(void)
{
	pr_info("unloaded\n");
}

module_init(tarn_probe_init);
module_exit(tarn_probe_exit);

MODULE_DESCRIPTION("tarn: proves that modules can be built and loaded");
MODULE_LICENSE("GPL");
