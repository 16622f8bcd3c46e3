// SPDX-License-Identifier: GPL-2.0
/*
 * Measures reassembly alone, a fragment at a time: the module's function beside the kernel's. For the lab's guests, where the time
 * stamp counter counts instructions.
 *
 *   echo "mainline 4 45 1400 reverse 100" >/sys/module/tarn_reassembly_bench/parameters/run
 *   cat /sys/module/tarn_reassembly_bench/parameters/result
 *
 * The words are: whose function, IP version, fragments of a datagram, bytes of a fragment, order of arrival, datagrams. The result
 * is the instructions of all calls, and the number of datagrams that became whole. The kernel's function is ip_defrag for IPv4. For
 * IPv6 it is nf_ct_frag6_gather, which connection tracking calls: the stack's own is not exported.
 */
#include <linux/bottom_half.h>
#include <linux/delay.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timex.h>
#include <linux/vmalloc.h>
#include <net/ip.h>
#include <net/ipv6_frag.h>
#include <net/net_namespace.h>
#include <net/netfilter/ipv6/nf_defrag_ipv6.h>

#include "bench.h"
#include "ipv4.h"
#include "ipv6.h"
#include "run.h"

/* Datagrams before the first that counts, so that caches of the allocators are as they will stay. */
#define WARM_UP 2
/* The kernel frees its queues after a grace period: it is waited for so often. */
#define DATAGRAMS_A_GRACE_PERIOD 20
#define MOST_FRAGMENTS 8192
#define START_MS 2000

struct outcome {
	u64 instructions;
	u32 completed;
};

static struct outcome last;

/* Takes a fragment. Returns 0 when @skb is the whole datagram now; else @skb is gone. */
typedef int (*take_t)(struct sk_buff *skb);

static int mainline_ipv4(struct sk_buff *skb)
{
	return ip_defrag(&init_net, skb, IP_DEFRAG_LOCAL_DELIVER);
}

static int mainline_ipv6(struct sk_buff *skb)
{
	return nf_ct_frag6_gather(&init_net, skb, IP6_DEFRAG_CONNTRACK_IN);
}

/* What runs while the module's function is measured. */
static struct reassembly *here;

/* One that passes is not the whole datagram, and would be seen as missing. */
static int taken(enum arrival arrival, struct sk_buff *skb)
{
	if (likely(arrival == ARRIVAL_TAKEN))
		return -EINPROGRESS;
	if (arrival == ARRIVAL_PASSES)
		kfree_skb(skb);
	return arrival == ARRIVAL_WHOLE ? 0 : -EINVAL;
}

static int tarn_ipv4(struct sk_buff *skb)
{
	return taken(reassembly_ipv4(here, skb), skb);
}

static int tarn_ipv6(struct sk_buff *skb)
{
	return taken(reassembly_ipv6(here, skb), skb);
}

/* What reading the counter twice costs. */
static u64 own_cost(void)
{
	u64 least = U64_MAX;
	int i;

	for (i = 0; i < 64; i++) {
		u64 start = get_cycles();

		least = min(least, (u64)get_cycles() - start);
	}
	return least;
}

static void free_all(struct sk_buff **skbs, u32 count)
{
	while (count--)
		kfree_skb(skbs[count]);
}

static int make(const struct bench_load *load, u32 datagram, u32 *places, struct sk_buff **skbs)
{
	u32 i;

	bench_places(load, places);
	for (i = 0; i < load->fragments; i++) {
		skbs[i] = bench_fragment(load, datagram, places[i]);
		if (!skbs[i]) {
			free_all(skbs, i);
			return -ENOMEM;
		}
	}
	return 0;
}

/* One datagram; its fragments are gone afterwards. Returns the instructions of all calls. */
static u64 measure(const struct bench_load *load, take_t take, struct sk_buff **skbs, bool *completed)
{
	struct sk_buff *whole = NULL;
	u64 sum = 0;
	u32 i;

	rcu_read_lock();
	local_bh_disable();
	for (i = 0; i < load->fragments; i++) {
		u64 start = get_cycles();
		int error = take(skbs[i]);

		sum += (u64)get_cycles() - start;
		if (!error)
			whole = skbs[i];
	}
	*completed = whole && bench_is_whole(load, whole);
	kfree_skb(whole);
	local_bh_enable();
	rcu_read_unlock();
	return sum;
}

static int run_all(const struct bench_load *load, take_t take, u32 datagrams)
{
	u32 *places = kvmalloc_array(load->fragments, sizeof(*places), GFP_KERNEL);
	struct sk_buff **skbs = kvmalloc_array(load->fragments, sizeof(*skbs), GFP_KERNEL);
	struct outcome outcome = {};
	u64 own = own_cost() * load->fragments;
	int error = places && skbs ? 0 : -ENOMEM;
	u32 i;

	for (i = 0; !error && i < WARM_UP + datagrams; i++) {
		bool completed;
		u64 sum;

		error = make(load, i, places, skbs);
		if (error)
			break;
		sum = measure(load, take, skbs, &completed);
		if (i >= WARM_UP) {
			outcome.instructions += sum - own;
			outcome.completed += completed;
		}
		if (i % DATAGRAMS_A_GRACE_PERIOD == 0) {
			synchronize_rcu();
			rcu_barrier();
		}
	}
	if (!error)
		last = outcome;
	kvfree(skbs);
	kvfree(places);
	return error;
}

static int run_mainline(const struct bench_load *load, u32 datagrams)
{
	return run_all(load, load->family == AF_INET ? mainline_ipv4 : mainline_ipv6, datagrams);
}

static int run_tarn(const struct bench_load *load, u32 datagrams)
{
	struct settings settings = run_defaults(&init_net);
	int error;

	here = run_start(&init_net, &settings);
	if (IS_ERR(here))
		return PTR_ERR(here);
	/* At the beginning, datagrams are left to the stack whose first fragment may have passed before. */
	msleep(START_MS);
	error = run_all(load, load->family == AF_INET ? tarn_ipv4 : tarn_ipv6, datagrams);
	run_stop(here);
	return error;
}

static const char * const orders[] = {
	[BENCH_IN_ORDER] = "in-order",
	[BENCH_REVERSE] = "reverse",
	[BENCH_RANDOM] = "random",
	[BENCH_HALVES] = "halves",
};

static int run_set(const char *text, const struct kernel_param *parameter)
{
	struct bench_load load = {};
	char whose[16], order[16];
	u32 version, datagrams;
	int found;

	if (sscanf(text, "%15s %u %u %u %15s %u", whose, &version, &load.fragments, &load.size, order, &datagrams) != 6)
		return -EINVAL;
	found = match_string(orders, ARRAY_SIZE(orders), order);
	if (found < 0 || !load.fragments || load.fragments > MOST_FRAGMENTS || load.size % 8 || !load.size ||
	    load.size > 4096 || load.fragments * load.size > 65000)
		return -EINVAL;
	load.order = found;
	load.family = version == 6 ? AF_INET6 : AF_INET;
	if (!strcmp(whose, "mainline"))
		return run_mainline(&load, datagrams);
	return strcmp(whose, "tarn") ? -EINVAL : run_tarn(&load, datagrams);
}

static int result_get(char *text, const struct kernel_param *parameter)
{
	return scnprintf(text, PAGE_SIZE, "%llu %u\n", last.instructions, last.completed);
}

static const struct kernel_param_ops run_ops = { .set = run_set };
static const struct kernel_param_ops result_ops = { .get = result_get };

module_param_cb(run, &run_ops, NULL, 0200);
module_param_cb(result, &result_ops, NULL, 0400);
