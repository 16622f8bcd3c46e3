// SPDX-License-Identifier: GPL-2.0
/* See run.h. */
#include <linux/ip.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/random.h>
#include <net/inet_frag.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "compat.h"
#include "ipv4.h"
#include "ipv6.h"
#include "limits.h"
#include "run.h"
#include "table.h"
#include "zone.h"

/* Connection tracking's own reassembly is at -400 in both families. */
#define PRIORITY (NF_IP_PRI_CONNTRACK_DEFRAG - 1)

/* So often, many are given up at once after a change: enough to empty the largest memory, and no end to it under a flood. */
#define CHANGE_ROUNDS 4096

static unsigned int verdict_of(enum arrival arrival)
{
	return arrival == ARRIVAL_TAKEN ? NF_STOLEN : NF_ACCEPT;
}

/* What has segments for a card to make (a tunnel's of a virtual machine) is not in the sizes it will have: the stack knows how. */
static bool is_left_alone(const struct sk_buff *skb)
{
	return unlikely(is_tracked(skb) || skb_is_gso(skb));
}

static unsigned int hook_ipv4(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	enum arrival arrival;

	if (likely(!ip_is_fragment(ip_hdr(skb))) || is_left_alone(skb))
		return NF_ACCEPT;
	/* What comes out of NFQUEUE comes in process context. */
	local_bh_disable();
	arrival = reassembly_ipv4(priv, skb);
	local_bh_enable();
	return verdict_of(arrival);
}

static unsigned int hook_ipv6(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	u8 next = ipv6_hdr(skb)->nexthdr;
	enum arrival arrival;

	/* Most packets have no extension header at all. */
	if (likely(next == NEXTHDR_TCP || next == NEXTHDR_UDP || next == NEXTHDR_ICMP) || is_left_alone(skb))
		return NF_ACCEPT;
	local_bh_disable();
	arrival = reassembly_ipv6(priv, skb);
	local_bh_enable();
	return verdict_of(arrival);
}

static const struct nf_hook_ops hooks[2] = {
	{ .hook = hook_ipv4, .pf = NFPROTO_IPV4, .hooknum = NF_INET_PRE_ROUTING, .priority = PRIORITY },
	{ .hook = hook_ipv6, .pf = NFPROTO_IPV6, .hooknum = NF_INET_PRE_ROUTING, .priority = PRIORITY },
};

/* With ipv6.disable=1, IPv6 has nothing of its own. */
static u64 timeout_of(const struct fqdir *stack, unsigned long otherwise)
{
	unsigned long time = stack ? READ_ONCE(stack->timeout) : otherwise;

	return clamp_t(u64, jiffies64_to_nsecs(time), TIMEOUT_LEAST, TIMEOUT_MOST);
}

struct settings run_defaults(const struct net *net)
{
	const struct fqdir *ipv4 = net->ipv4.fqdir, *ipv6 = net->ipv6.fqdir;

	return (struct settings){
		.memory = clamp_t(u64, ipv4->high_thresh, MEMORY_LEAST, MEMORY_MOST),
		.share = SHARE_DEFAULT,
		.timeout = {
			timeout_of(ipv4, IP_FRAG_TIME),
			timeout_of(ipv6, IPV6_FRAG_TIMEOUT),
		},
		.datagrams = TARN_REASSEMBLY_AUTO,
	};
}

static void apply(struct reassembly *here, const struct settings *settings)
{
	WRITE_ONCE(here->settings.memory, settings->memory);
	WRITE_ONCE(here->settings.share, settings->share);
	WRITE_ONCE(here->settings.timeout[0], settings->timeout[0]);
	WRITE_ONCE(here->settings.timeout[1], settings->timeout[1]);
	WRITE_ONCE(here->settings.datagrams, settings->datagrams);
	WRITE_ONCE(here->memory.ceiling, settings->memory);
	WRITE_ONCE(here->memory.share, div_u64(settings->memory, settings->share));
}

void run_change(struct reassembly *here, const struct settings *settings)
{
	int i;

	apply(here, settings);
	table_rank(here);
	for (i = 0; i < CHANGE_ROUNDS && memory_is_full(&here->memory); i++) {
		table_shed(here);
		cond_resched();
	}
}

static struct reassembly *new_reassembly(struct net *net)
{
	struct reassembly *here = kvzalloc(sizeof(*here), GFP_KERNEL_ACCOUNT);
	u32 i;

	if (!here)
		return NULL;
	here->net = net;
	here->began = get_jiffies_64();
	get_random_bytes(&here->numbers, sizeof(here->numbers));
	timer_setup(&here->timer, table_expire, 0);
	for (i = 0; i < MEMORY_SHARDS; i++) {
		spin_lock_init(&here->shards[i].lock);
		here->memory.shards[i] = &here->shards[i].memory;
		memory_shard_init(&here->memory, i);
	}
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		here->hooks[i] = hooks[i];
		here->hooks[i].priv = here;
	}
	return here;
}

/* The hooks are out, but may still run on other CPUs. */
static void end(struct reassembly *here)
{
	table_flush(here);
	timer_shutdown_sync(&here->timer);
	synchronize_net();
	WARN_ON_ONCE(atomic_long_read(&here->datagrams) || atomic_long_read(&here->memory.held));
	table_free(here);
	kvfree(here);
}

struct reassembly *run_start(struct net *net, const struct settings *settings)
{
	struct reassembly *here = new_reassembly(net);
	int error;

	if (!here)
		return ERR_PTR(-ENOMEM);
	apply(here, settings);
	error = nf_register_net_hooks(net, here->hooks, ARRAY_SIZE(here->hooks));
	if (!error)
		return here;
	/* The first hook may have seen packets when the second one failed. */
	end(here);
	return ERR_PTR(error);
}

void run_stop(struct reassembly *here)
{
	nf_unregister_net_hooks(here->net, here->hooks, ARRAY_SIZE(here->hooks));
	end(here);
}
