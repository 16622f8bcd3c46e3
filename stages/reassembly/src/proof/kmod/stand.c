// SPDX-License-Identifier: GPL-2.0
/*
 * Hooks in the place of the module's: one drops every fragment, and is the control of the experiments; the other has the lists of
 * lists.c reassemble.
 *
 *   echo 1 >/sys/module/tarn_reassembly_bench/parameters/drop              0 ends it
 *   echo tail >/sys/module/tarn_reassembly_bench/parameters/strategy       head; none ends it
 *   cat /sys/module/tarn_reassembly_bench/parameters/comparisons           since it began
 *
 * A hook is in the namespace of whoever writes, one at a time. As long as it is there, namespace and module stay.
 */
#include <linux/ip.h>
#include <linux/module.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>

#include "lists.h"

/* Before everything that puts datagrams together. */
#define PRIORITY_DROP (NF_IP_PRI_CONNTRACK_DEFRAG - 2)
#define PRIORITY_LISTS (NF_IP_PRI_CONNTRACK_DEFRAG - 1)

static unsigned int drop_ipv4(void *private, struct sk_buff *skb, const struct nf_hook_state *state)
{
	return ip_is_fragment(ip_hdr(skb)) ? NF_DROP : NF_ACCEPT;
}

static unsigned int drop_ipv6(void *private, struct sk_buff *skb, const struct nf_hook_state *state)
{
	return ipv6_hdr(skb)->nexthdr == NEXTHDR_FRAGMENT ? NF_DROP : NF_ACCEPT;
}

static unsigned int take_ipv4(void *private, struct sk_buff *skb, const struct nf_hook_state *state)
{
	if (!ip_is_fragment(ip_hdr(skb)))
		return NF_ACCEPT;
	if (lists_take(skb))
		return NF_STOLEN;
	skb->ignore_df = 1;
	return NF_ACCEPT;
}

static const struct nf_hook_ops drop_hooks[] = {
	{ .hook = drop_ipv4, .pf = NFPROTO_IPV4, .hooknum = NF_INET_PRE_ROUTING, .priority = PRIORITY_DROP },
	{ .hook = drop_ipv6, .pf = NFPROTO_IPV6, .hooknum = NF_INET_PRE_ROUTING, .priority = PRIORITY_DROP },
};
static const struct nf_hook_ops lists_hooks[] = {
	{ .hook = take_ipv4, .pf = NFPROTO_IPV4, .hooknum = NF_INET_PRE_ROUTING, .priority = PRIORITY_LISTS },
};

/* What is registered and where; NULL when nothing is. The parameters' lock keeps them: writers wait for each other. */
static const struct nf_hook_ops *hooks;
static unsigned int hooks_count;
static struct net *hooks_net;

static void end(void)
{
	if (!hooks)
		return;
	nf_unregister_net_hooks(hooks_net, hooks, hooks_count);
	lists_end();
	put_net(hooks_net);
	hooks = NULL;
	module_put(THIS_MODULE);
}

static int begin(const struct nf_hook_ops *wanted, unsigned int count)
{
	struct net *net = current->nsproxy->net_ns;
	int error;

	if (hooks)
		return -EBUSY;
	if (!try_module_get(THIS_MODULE))
		return -ENODEV;
	error = nf_register_net_hooks(net, wanted, count);
	if (error) {
		module_put(THIS_MODULE);
		return error;
	}
	hooks = wanted;
	hooks_count = count;
	hooks_net = get_net(net);
	return 0;
}

static int drop_set(const char *text, const struct kernel_param *parameter)
{
	bool yes;
	int error = kstrtobool(text, &yes);

	if (error)
		return error;
	if (yes)
		return begin(drop_hooks, ARRAY_SIZE(drop_hooks));
	end();
	return 0;
}

static const char * const strategies[] = {
	[LISTS_NONE] = "none",
	[LISTS_HEAD] = "head",
	[LISTS_TAIL] = "tail",
};

static int strategy_set(const char *text, const struct kernel_param *parameter)
{
	int found = sysfs_match_string(strategies, text);

	if (found < 0)
		return found;
	if (found == LISTS_NONE) {
		end();
		return 0;
	}
	lists_begin(found);
	return begin(lists_hooks, ARRAY_SIZE(lists_hooks));
}

static int comparisons_get(char *text, const struct kernel_param *parameter)
{
	return scnprintf(text, PAGE_SIZE, "%llu\n", lists_comparisons());
}

static const struct kernel_param_ops drop_ops = { .set = drop_set };
static const struct kernel_param_ops strategy_ops = { .set = strategy_set };
static const struct kernel_param_ops comparisons_ops = { .get = comparisons_get };

module_param_cb(drop, &drop_ops, NULL, 0200);
module_param_cb(strategy, &strategy_ops, NULL, 0200);
module_param_cb(comparisons, &comparisons_ops, NULL, 0400);
