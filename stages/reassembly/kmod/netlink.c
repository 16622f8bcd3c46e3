// SPDX-License-Identifier: GPL-2.0
/* See netlink.h, and ../uapi.h for what messages say. Commands come one at a time: what runs stays while one is carried out. */
#include <linux/slab.h>
#include <net/genetlink.h>

#include "figures.h"
#include "limits.h"
#include "main.h"
#include "netlink.h"
#include "run.h"

static struct genl_family family;

static struct netlink_range_validation memory_range = { MEMORY_LEAST, MEMORY_MOST };
static struct netlink_range_validation timeout_range = { TIMEOUT_LEAST, TIMEOUT_MOST };

static const struct nla_policy set_policy[TARN_REASSEMBLY_A_DATAGRAMS + 1] = {
	[TARN_REASSEMBLY_A_MEMORY] = NLA_POLICY_FULL_RANGE(NLA_U64, &memory_range),
	[TARN_REASSEMBLY_A_SHARE] = NLA_POLICY_RANGE(NLA_U32, SHARE_LEAST, SHARE_MOST),
	[TARN_REASSEMBLY_A_TIMEOUT4] = NLA_POLICY_FULL_RANGE(NLA_U64, &timeout_range),
	[TARN_REASSEMBLY_A_TIMEOUT6] = NLA_POLICY_FULL_RANGE(NLA_U64, &timeout_range),
	[TARN_REASSEMBLY_A_DATAGRAMS] = NLA_POLICY_MAX(NLA_U32, TARN_REASSEMBLY_ALL),
};

static void set32(u32 *value, const struct nlattr *given)
{
	if (given)
		*value = nla_get_u32(given);
}

static void set64(u64 *value, const struct nlattr *given)
{
	if (given)
		*value = nla_get_u64(given);
}

static int do_set(struct sk_buff *skb, struct genl_info *info)
{
	struct net *net = genl_info_net(info);
	struct reassembly **place = place_in(net), *here = *place;
	struct settings settings = here ? here->settings : run_defaults(net);

	set64(&settings.memory, info->attrs[TARN_REASSEMBLY_A_MEMORY]);
	set32(&settings.share, info->attrs[TARN_REASSEMBLY_A_SHARE]);
	set64(&settings.timeout[0], info->attrs[TARN_REASSEMBLY_A_TIMEOUT4]);
	set64(&settings.timeout[1], info->attrs[TARN_REASSEMBLY_A_TIMEOUT6]);
	set32(&settings.datagrams, info->attrs[TARN_REASSEMBLY_A_DATAGRAMS]);
	if (here) {
		run_change(here, &settings);
		return 0;
	}
	here = run_start(net, &settings);
	if (IS_ERR(here))
		return PTR_ERR(here);
	*place = here;
	return 0;
}

static int do_stop(struct sk_buff *skb, struct genl_info *info)
{
	struct reassembly **place = place_in(genl_info_net(info));

	if (!*place)
		return -ENOENT;
	run_stop(*place);
	*place = NULL;
	return 0;
}

static struct sk_buff *new_answer(struct genl_info *info, size_t payload, void **header)
{
	struct sk_buff *answer = genlmsg_new(payload, GFP_KERNEL);

	if (!answer)
		return NULL;
	*header = genlmsg_put_reply(answer, info, &family, 0, info->genlhdr->cmd);
	if (*header)
		return answer;
	nlmsg_free(answer);
	return NULL;
}

static bool put_settings(struct sk_buff *answer, const struct settings *settings)
{
	return !nla_put_u64_64bit(answer, TARN_REASSEMBLY_A_MEMORY, settings->memory, TARN_REASSEMBLY_A_PAD) &&
	       !nla_put_u32(answer, TARN_REASSEMBLY_A_SHARE, settings->share) &&
	       !nla_put_u64_64bit(answer, TARN_REASSEMBLY_A_TIMEOUT4, settings->timeout[0], TARN_REASSEMBLY_A_PAD) &&
	       !nla_put_u64_64bit(answer, TARN_REASSEMBLY_A_TIMEOUT6, settings->timeout[1], TARN_REASSEMBLY_A_PAD) &&
	       !nla_put_u32(answer, TARN_REASSEMBLY_A_DATAGRAMS, settings->datagrams);
}

static int do_get(struct sk_buff *skb, struct genl_info *info)
{
	struct reassembly *here = *place_in(genl_info_net(info));
	struct tarn_reassembly_figures figures;
	struct tarn_reassembly_counts counts[2];
	struct sk_buff *answer;
	void *header;

	if (!here)
		return -ENOENT;
	figures_read(here, &figures, counts);
	answer = new_answer(info, 512 + sizeof(figures) + sizeof(counts), &header);
	if (!answer)
		return -ENOMEM;
	if (!put_settings(answer, &here->settings) ||
	    nla_put(answer, TARN_REASSEMBLY_A_FIGURES, sizeof(figures), &figures) ||
	    nla_put(answer, TARN_REASSEMBLY_A_IPV4, sizeof(counts[0]), &counts[0]) ||
	    nla_put(answer, TARN_REASSEMBLY_A_IPV6, sizeof(counts[1]), &counts[1])) {
		nlmsg_free(answer);
		return -EMSGSIZE;
	}
	genlmsg_end(answer, header);
	return genlmsg_reply(answer, info);
}

static int do_get_sources(struct sk_buff *skb, struct genl_info *info)
{
	struct reassembly *here = *place_in(genl_info_net(info));
	struct tarn_reassembly_source *sources;
	struct sk_buff *answer;
	int error = -ENOMEM;
	void *header;
	size_t size;

	if (!here)
		return -ENOENT;
	sources = kvcalloc(TARN_REASSEMBLY_SOURCES, sizeof(*sources), GFP_KERNEL);
	if (!sources)
		return -ENOMEM;
	size = figures_sources(here, sources) * sizeof(*sources);
	answer = new_answer(info, nla_total_size(size), &header);
	if (!answer)
		goto out;
	error = -EMSGSIZE;
	if (nla_put(answer, TARN_REASSEMBLY_A_SOURCES, size, sources)) {
		nlmsg_free(answer);
		goto out;
	}
	genlmsg_end(answer, header);
	error = genlmsg_reply(answer, info);
out:
	kvfree(sources);
	return error;
}

/* GENL_ADMIN_PERM: the right to administer the network of the host, not that of a namespace. */
static const struct genl_ops operations[] = {
	{
		.cmd = TARN_REASSEMBLY_CMD_SET,
		.flags = GENL_ADMIN_PERM,
		.doit = do_set,
		.policy = set_policy,
		.maxattr = ARRAY_SIZE(set_policy) - 1,
	},
	{ .cmd = TARN_REASSEMBLY_CMD_STOP, .flags = GENL_ADMIN_PERM, .doit = do_stop },
	{ .cmd = TARN_REASSEMBLY_CMD_GET, .flags = GENL_ADMIN_PERM, .doit = do_get },
	{ .cmd = TARN_REASSEMBLY_CMD_GET_SOURCES, .flags = GENL_ADMIN_PERM, .doit = do_get_sources },
};

static struct genl_family family = {
	.name = TARN_REASSEMBLY_FAMILY,
	.version = TARN_REASSEMBLY_VERSION,
	.netnsok = true,
	.module = THIS_MODULE,
	.ops = operations,
	.n_ops = ARRAY_SIZE(operations),
	.resv_start_op = TARN_REASSEMBLY_CMD_UNSPEC + 1,
};

int netlink_register(void)
{
	return genl_register_family(&family);
}

void netlink_unregister(void)
{
	genl_unregister_family(&family);
}
