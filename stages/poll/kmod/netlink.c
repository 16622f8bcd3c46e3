// SPDX-License-Identifier: GPL-2.0
/* See netlink.h, and ../uapi.h for what messages say. Commands come one at a time. */
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/genetlink.h>

#include "netlink.h"
#include "published.h"
#include "weight.h"

static struct genl_family family;

/* A poll of fewer packets would cost more for its beginning and end than for them. */
#define WEIGHT_LEAST 8
#define WEIGHT_MOST 256

static const struct nla_policy set_policy[TARN_POLL_A_WEIGHT + 1] = {
	[TARN_POLL_A_DEVICE] = NLA_POLICY_MIN(NLA_U32, 1),
	[TARN_POLL_A_RULE] = NLA_POLICY_MAX(NLA_U32, TARN_POLL_PUBLISHED),
	[TARN_POLL_A_WEIGHT] = NLA_POLICY_RANGE(NLA_U32, WEIGHT_LEAST, WEIGHT_MOST),
};

static int set(struct net *net, int index, u32 rule, u32 weight)
{
	struct net_device *device;
	int error = -ENODEV;

	rtnl_lock();
	device = __dev_get_by_index(net, index);
	if (device)
		error = weight_set(device, rule, weight);
	rtnl_unlock();
	return error;
}

static void leave_unless_needed(void)
{
	if (!weight_is_published())
		published_leave();
}

static int do_set(struct sk_buff *skb, struct genl_info *info)
{
	u32 rule = TARN_POLL_FIXED, weight = NAPI_POLL_WEIGHT;
	struct nlattr **given = info->attrs;
	int error;

	if (GENL_REQ_ATTR_CHECK(info, TARN_POLL_A_DEVICE))
		return -EINVAL;
	if (given[TARN_POLL_A_RULE])
		rule = nla_get_u32(given[TARN_POLL_A_RULE]);
	if (rule == TARN_POLL_FIXED) {
		if (GENL_REQ_ATTR_CHECK(info, TARN_POLL_A_WEIGHT))
			return -EINVAL;
		weight = nla_get_u32(given[TARN_POLL_A_WEIGHT]);
	} else {
		error = published_join();
		if (error)
			return error;
	}
	error = set(genl_info_net(info), nla_get_u32(given[TARN_POLL_A_DEVICE]), rule, weight);
	leave_unless_needed();
	return error;
}

static int do_stop(struct sk_buff *skb, struct genl_info *info)
{
	bool any = weight_stop(genl_info_net(info));

	leave_unless_needed();
	return any ? 0 : -ENOENT;
}

static int do_get(struct sk_buff *skb, struct genl_info *info)
{
	struct tarn_poll_napi *list;
	struct sk_buff *answer = NULL;
	int length, error = -ENOMEM;
	void *header;

	list = kvcalloc(TARN_POLL_NAPIS, sizeof(*list), GFP_KERNEL);
	if (!list)
		return -ENOMEM;
	length = weight_list(genl_info_net(info), list, TARN_POLL_NAPIS);
	if (length < 0) {
		error = length;
		goto out;
	}
	answer = genlmsg_new(nla_total_size(length * sizeof(*list)), GFP_KERNEL);
	if (!answer)
		goto out;
	header = genlmsg_put_reply(answer, info, &family, 0, info->genlhdr->cmd);
	error = -EMSGSIZE;
	if (!header || nla_put(answer, TARN_POLL_A_NAPIS, length * sizeof(*list), list)) {
		nlmsg_free(answer);
		goto out;
	}
	genlmsg_end(answer, header);
	error = genlmsg_reply(answer, info);
out:
	kvfree(list);
	return error;
}

/* GENL_ADMIN_PERM: the right to administer the network of the host, not that of a namespace. */
static const struct genl_ops operations[] = {
	{
		.cmd = TARN_POLL_CMD_SET,
		.flags = GENL_ADMIN_PERM,
		.doit = do_set,
		.policy = set_policy,
		.maxattr = ARRAY_SIZE(set_policy) - 1,
	},
	{ .cmd = TARN_POLL_CMD_STOP, .flags = GENL_ADMIN_PERM, .doit = do_stop },
	{ .cmd = TARN_POLL_CMD_GET, .flags = GENL_ADMIN_PERM, .doit = do_get },
};

static struct genl_family family = {
	.name = TARN_POLL_FAMILY,
	.version = TARN_POLL_VERSION,
	.netnsok = true,
	.module = THIS_MODULE,
	.ops = operations,
	.n_ops = ARRAY_SIZE(operations),
	.resv_start_op = TARN_POLL_CMD_UNSPEC + 1,
};

int netlink_register(void)
{
	return genl_register_family(&family);
}

void netlink_unregister(void)
{
	genl_unregister_family(&family);
}
