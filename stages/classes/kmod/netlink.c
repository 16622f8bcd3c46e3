// SPDX-License-Identifier: GPL-2.0
/* See netlink.h, and ../uapi.h for what messages say. */
#include <linux/slab.h>
#include <net/genetlink.h>

#include "dispatch.h"
#include "memory.h"
#include "netlink.h"
#include "netlink_clients.h"
#include "requests.h"
#include "services.h"

#define WINDOW_DEFAULT (10ULL * NSEC_PER_SEC)
#define PATIENCE_DEFAULT (2ULL * NSEC_PER_SEC)
#define BYTES_DEFAULT (64ULL << 20)
#define HOUR (3600ULL * NSEC_PER_SEC)

static struct netlink_range_validation window_range = { 10 * NSEC_PER_MSEC, HOUR };
static struct netlink_range_validation hold_range = { 0, NSEC_PER_SEC };
static struct netlink_range_validation patience_range = { NSEC_PER_MSEC, HOUR };
static struct netlink_range_validation overdue_range = { 0, HOUR };
static struct netlink_range_validation bytes_range = { 64 << 10, 4ULL << 30 };

static const struct nla_policy set_policy[TARN_CLASSES_A_PROTOCOL + 1] = {
	[TARN_CLASSES_A_PORTS] = { .type = NLA_BINARY,
				   .len = TARN_CLASSES_MOST_PORTS * sizeof(struct tarn_classes_ports) },
	[TARN_CLASSES_A_CLASSES] = { .type = NLA_BINARY,
				     .len = TARN_CLASSES_MOST * sizeof(struct tarn_classes_target) },
	[TARN_CLASSES_A_RULE] = NLA_POLICY_MAX(NLA_U32, TARN_CLASSES_PUBLISHED),
	[TARN_CLASSES_A_LIMIT] = NLA_POLICY_MAX(NLA_U32, LIMIT_MOST),
	[TARN_CLASSES_A_WINDOW] = NLA_POLICY_FULL_RANGE(NLA_U64, &window_range),
	[TARN_CLASSES_A_HOLD] = NLA_POLICY_FULL_RANGE(NLA_U64, &hold_range),
	[TARN_CLASSES_A_HOLD_ROUNDS] = NLA_POLICY_MAX(NLA_U32, 1000),
	[TARN_CLASSES_A_PATIENCE] = NLA_POLICY_FULL_RANGE(NLA_U64, &patience_range),
	[TARN_CLASSES_A_OVERDUE] = NLA_POLICY_FULL_RANGE(NLA_U64, &overdue_range),
	[TARN_CLASSES_A_BYTES] = NLA_POLICY_FULL_RANGE(NLA_U64, &bytes_range),
	[TARN_CLASSES_A_NUMBER] = NLA_POLICY_MAX(NLA_U32, TARN_CLASSES_MOST_SERVICES - 1),
	[TARN_CLASSES_A_PROTOCOL] = NLA_POLICY_MAX(NLA_U32, TARN_CLASSES_CONNECTION),
};

static const struct nla_policy number_policy[TARN_CLASSES_A_NUMBER + 1] = {
	[TARN_CLASSES_A_NUMBER] = NLA_POLICY_MAX(NLA_U32, TARN_CLASSES_MOST_SERVICES - 1),
};

static const struct nla_policy times_policy[TARN_CLASSES_A_CLASS + 1] = {
	[TARN_CLASSES_A_NUMBER] = NLA_POLICY_MAX(NLA_U32, TARN_CLASSES_MOST_SERVICES - 1),
	[TARN_CLASSES_A_CLASS] = { .type = NLA_U32 },
};

static u32 number_in(const struct genl_info *info)
{
	const struct nlattr *number = info->attrs[TARN_CLASSES_A_NUMBER];

	return number ? nla_get_u32(number) : 0;
}

/* The service that a command is about, or NULL. */
static struct classes *service_in(struct genl_info *info)
{
	return service_of(genl_info_net(info), number_in(info));
}

/* How many of `size` bytes an attribute holds, or 0 when it is not whole. */
static u32 count_of(const struct nlattr *attribute, size_t size)
{
	return attribute && nla_len(attribute) % size == 0 ? nla_len(attribute) / size : 0;
}

static int check_ports(const struct nlattr *attribute, struct netlink_ext_ack *extack)
{
	const struct tarn_classes_ports *range = nla_data(attribute);
	u32 count = count_of(attribute, sizeof(*range));

	if (!count) {
		NL_SET_ERR_MSG_ATTR(extack, attribute, "ports: not an array of struct tarn_classes_ports");
		return -EINVAL;
	}
	for (; count--; range++) {
		if (range->protocol != IPPROTO_TCP && range->protocol != IPPROTO_UDP) {
			NL_SET_ERR_MSG_ATTR(extack, attribute, "ports: the protocol must be TCP or UDP");
			return -EINVAL;
		}
		if (!range->first || range->first > range->last) {
			NL_SET_ERR_MSG_ATTR(extack, attribute, "ports: a range must lead from 1 or more to no less");
			return -EINVAL;
		}
		if (range->padding[0] || range->padding[1] || range->padding[2]) {
			NL_SET_ERR_MSG_ATTR(extack, attribute, "ports: padding must be 0");
			return -EINVAL;
		}
	}
	return 0;
}

static int check_classes(const struct nlattr *attribute, struct netlink_ext_ack *extack)
{
	u32 i, count = count_of(attribute, sizeof(struct tarn_classes_target));
	struct tarn_classes_target target;

	if (!count) {
		NL_SET_ERR_MSG_ATTR(extack, attribute, "classes: not an array of struct tarn_classes_target");
		return -EINVAL;
	}
	for (i = 0; i < count; i++) {
		/* Attributes are aligned to four bytes only. */
		memcpy(&target, nla_data(attribute) + i * sizeof(target), sizeof(target));
		if (!target.target || target.target > WHOLE_TARGET) {
			NL_SET_ERR_MSG_ATTR(extack, attribute, "classes: a target must be 1 to 10000");
			return -ERANGE;
		}
		if (target.deadline < NSEC_PER_USEC || target.deadline > HOUR) {
			NL_SET_ERR_MSG_ATTR(extack, attribute, "classes: a deadline must be a microsecond to an hour");
			return -ERANGE;
		}
		if (!target.cap || target.cap > 1 << 20) {
			NL_SET_ERR_MSG_ATTR(extack, attribute, "classes: a cap must be 1 to 1048576");
			return -ERANGE;
		}
	}
	return 0;
}

/* Everything that can be refused is refused here. */
static int check(struct nlattr **attributes, const struct classes *running, struct netlink_ext_ack *extack)
{
	const struct nlattr *ports = attributes[TARN_CLASSES_A_PORTS], *classes = attributes[TARN_CLASSES_A_CLASSES];
	int error;

	if (!running && (!ports || !classes)) {
		NL_SET_ERR_MSG(extack, "to begin, ports and classes must be given");
		return -EINVAL;
	}
	error = ports ? check_ports(ports, extack) : 0;
	if (!error && classes)
		error = check_classes(classes, extack);
	if (!error && running && classes && count_of(classes, sizeof(struct tarn_classes_target)) != running->count) {
		NL_SET_ERR_MSG_ATTR(extack, classes, "the number of classes cannot change while they run: stop first");
		error = -EBUSY;
	}
	return error;
}

static u64 shortest_deadline(const struct classes *classes)
{
	u64 shortest = U64_MAX;
	u32 i;

	for (i = 0; i < classes->count; i++)
		shortest = min(shortest, classes->class[i].target.deadline);
	return shortest;
}

static void set_values(struct classes *classes, struct nlattr **attributes, bool is_new)
{
	struct nlattr *given;
	u32 i;

	spin_lock_bh(&classes->lock);
	given = attributes[TARN_CLASSES_A_CLASSES];
	for (i = 0; given && i < classes->count; i++)
		memcpy(&classes->class[i].target, nla_data(given) + i * sizeof(struct tarn_classes_target),
		       sizeof(struct tarn_classes_target));
	if (given)
		classes->limit.finding.deadline = shortest_deadline(classes);
	if (is_new) {
		classes->window = WINDOW_DEFAULT;
		classes->patience = PATIENCE_DEFAULT;
		classes->bytes = min(BYTES_DEFAULT, memory_ceiling());
		limit_set(&classes->limit, 0);
	}
	given = attributes[TARN_CLASSES_A_PROTOCOL];
	if (given)
		classes->protocol = nla_get_u32(given);
	given = attributes[TARN_CLASSES_A_RULE];
	if (given)
		classes->rule = nla_get_u32(given);
	given = attributes[TARN_CLASSES_A_LIMIT];
	if (given)
		limit_set(&classes->limit, nla_get_u32(given));
	given = attributes[TARN_CLASSES_A_WINDOW];
	if (given) {
		classes->window = nla_get_u64(given);
		/* Slots of another length do not add up: shares begin anew. */
		for (i = 0; i < classes->count; i++)
			window_clear(&classes->class[i].window);
	}
	given = attributes[TARN_CLASSES_A_HOLD];
	if (given)
		classes->hold = nla_get_u64(given);
	given = attributes[TARN_CLASSES_A_HOLD_ROUNDS];
	if (given)
		classes->hold_rounds = nla_get_u32(given);
	given = attributes[TARN_CLASSES_A_PATIENCE];
	if (given)
		classes->patience = nla_get_u64(given);
	given = attributes[TARN_CLASSES_A_OVERDUE];
	if (given)
		classes->overdue = nla_get_u64(given);
	given = attributes[TARN_CLASSES_A_BYTES];
	if (given)
		classes->bytes = min(nla_get_u64(given), memory_ceiling());
	if (is_new || attributes[TARN_CLASSES_A_WINDOW])
		classes->next_slot = ktime_get_ns() + div_u64(classes->window, WINDOW_SLOTS);
	spin_unlock_bh(&classes->lock);
}

/* Has the service begin, without ports yet: when those fail, it ends again. */
static struct classes *begin(struct genl_info *info)
{
	u32 count = count_of(info->attrs[TARN_CLASSES_A_CLASSES], sizeof(struct tarn_classes_target));
	struct classes *classes = service_alloc(genl_info_net(info), number_in(info), count);
	int error;

	if (!classes)
		return ERR_PTR(-ENOMEM);
	set_values(classes, info->attrs, true);
	error = service_start(classes);
	if (!error)
		return classes;
	service_free(classes);
	return ERR_PTR(error);
}

static int set_ports(struct classes *classes, const struct nlattr *ports)
{
	struct tarn_classes_ports *ranges = kmemdup(nla_data(ports), nla_len(ports), GFP_KERNEL_ACCOUNT);

	return ranges ? service_set_ports(classes, ranges, count_of(ports, sizeof(*ranges))) : -ENOMEM;
}

static int do_set(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr *ports = info->attrs[TARN_CLASSES_A_PORTS];
	struct classes *classes = service_in(info);
	bool is_new = !classes;
	int error;

	error = check(info->attrs, classes, info->extack);
	if (error)
		return error;
	if (is_new)
		classes = begin(info);
	if (IS_ERR(classes))
		return PTR_ERR(classes);
	error = ports ? set_ports(classes, ports) : 0;
	if (error && is_new)
		service_stop(genl_info_net(info), number_in(info));
	if (error || is_new)
		return error;
	set_values(classes, info->attrs, false);
	/* With bottom halves on, what this raises would not run before the next interrupt. */
	local_bh_disable();
	dispatch_kick(classes);
	local_bh_enable();
	return 0;
}

static int do_stop(struct sk_buff *skb, struct genl_info *info)
{
	struct net *net = genl_info_net(info);

	if (info->attrs[TARN_CLASSES_A_NUMBER] ? !service_in(info) : !services_run(net) && !services_clients(net, false))
		return -ENOENT;
	if (info->attrs[TARN_CLASSES_A_NUMBER])
		service_stop(net, number_in(info));
	else
		services_stop(net);
	return 0;
}

static int do_reset(struct sk_buff *skb, struct genl_info *info)
{
	struct classes *classes = service_in(info);
	u32 i;

	if (!classes)
		return -ENOENT;
	spin_lock_bh(&classes->lock);
	classes->resets++;
	for (i = 0; i < classes->count; i++) {
		struct client_class *class = &classes->class[i];
		struct tarn_classes_figures *figures = &class->figures;

		*figures = (struct tarn_classes_figures){
			.waiting = figures->waiting,
			.aside = figures->aside,
			.in_flight = figures->in_flight,
			.waiting_packets = figures->waiting_packets,
		};
		window_clear(&class->window);
		memset(class->times, 0, sizeof(class->times));
	}
	spin_unlock_bh(&classes->lock);
	return 0;
}

struct sk_buff *new_answer(struct genl_info *info, size_t payload, void **header)
{
	struct sk_buff *answer = genlmsg_new(payload, GFP_KERNEL);

	if (!answer)
		return NULL;
	*header = genlmsg_put_reply(answer, info, &netlink_family, 0, info->genlhdr->cmd);
	if (*header)
		return answer;
	nlmsg_free(answer);
	return NULL;
}

/* Copies of what changes, made under the lock, so that the figures of one answer belong together. */
static bool put_values(struct sk_buff *answer, struct classes *classes, struct tarn_classes_target *targets,
		       struct tarn_classes_figures *figures)
{
	struct share share;
	bool failed;
	u32 i;

	spin_lock_bh(&classes->lock);
	shares_advance(classes, ktime_get_ns());
	for (i = 0; i < classes->count; i++) {
		struct client_class *class = &classes->class[i];

		targets[i] = class->target;
		figures[i] = class->figures;
		figures[i].window_requests = class->window.requests;
		figures[i].window_in_time = class->window.in_time;
		share = dispatch_share(classes, class);
		figures[i].rule_requests = share.requests;
		figures[i].rule_in_time = share.in_time;
	}
	failed = nla_put_u32(answer, TARN_CLASSES_A_PROTOCOL, classes->protocol) ||
		 nla_put_u32(answer, TARN_CLASSES_A_RULE, classes->rule) ||
		 nla_put_u32(answer, TARN_CLASSES_A_LIMIT, classes->limit.fixed) ||
		 nla_put_u64_64bit(answer, TARN_CLASSES_A_WINDOW, classes->window, TARN_CLASSES_A_PAD) ||
		 nla_put_u64_64bit(answer, TARN_CLASSES_A_HOLD, classes->hold, TARN_CLASSES_A_PAD) ||
		 nla_put_u32(answer, TARN_CLASSES_A_HOLD_ROUNDS, classes->hold_rounds) ||
		 nla_put_u64_64bit(answer, TARN_CLASSES_A_PATIENCE, classes->patience, TARN_CLASSES_A_PAD) ||
		 nla_put_u64_64bit(answer, TARN_CLASSES_A_OVERDUE, classes->overdue, TARN_CLASSES_A_PAD) ||
		 nla_put_u64_64bit(answer, TARN_CLASSES_A_BYTES, classes->bytes, TARN_CLASSES_A_PAD) ||
		 nla_put_u32(answer, TARN_CLASSES_A_IN_FLIGHT, classes->in_flight) ||
		 nla_put_u32(answer, TARN_CLASSES_A_PLACES, classes->places) ||
		 nla_put_u32(answer, TARN_CLASSES_A_LIMIT_NOW, classes->limit.now) ||
		 nla_put_u64_64bit(answer, TARN_CLASSES_A_OVERDUE_NOW, requests_overdue_after(classes), TARN_CLASSES_A_PAD) ||
		 nla_put_u64_64bit(answer, TARN_CLASSES_A_SERVICE, classes->limit.service, TARN_CLASSES_A_PAD);
	spin_unlock_bh(&classes->lock);
	return !failed;
}

static int do_get(struct sk_buff *skb, struct genl_info *info)
{
	struct classes *classes = service_in(info);
	struct tarn_classes_figures *figures;
	struct tarn_classes_target *targets;
	struct sk_buff *answer = NULL;
	int error = -ENOMEM;
	size_t ports;
	void *header;

	if (!classes)
		return -ENOENT;
	ports = classes->range_count * sizeof(*classes->ranges);
	targets = kcalloc(classes->count, sizeof(*targets), GFP_KERNEL);
	figures = kcalloc(classes->count, sizeof(*figures), GFP_KERNEL);
	if (!targets || !figures)
		goto out;
	answer = new_answer(info, 1024 + ports + classes->count * (sizeof(*targets) + sizeof(*figures)), &header);
	if (!answer)
		goto out;
	error = -EMSGSIZE;
	if (!put_values(answer, classes, targets, figures) ||
	    nla_put_u64_64bit(answer, TARN_CLASSES_A_CHANGES, services_clients(classes->net, false)->changes, TARN_CLASSES_A_PAD) ||
	    nla_put(answer, TARN_CLASSES_A_PORTS, ports, classes->ranges) ||
	    nla_put(answer, TARN_CLASSES_A_CLASSES, classes->count * sizeof(*targets), targets) ||
	    nla_put(answer, TARN_CLASSES_A_FIGURES, classes->count * sizeof(*figures), figures))
		goto out;
	genlmsg_end(answer, header);
	error = genlmsg_reply(answer, info);
	answer = NULL;
out:
	nlmsg_free(answer);
	kfree(figures);
	kfree(targets);
	return error;
}

static int do_get_times(struct sk_buff *skb, struct genl_info *info)
{
	struct classes *classes = service_in(info);
	struct sk_buff *answer;
	struct nlattr *times;
	void *header;
	u32 index;

	if (!classes)
		return -ENOENT;
	if (GENL_REQ_ATTR_CHECK(info, TARN_CLASSES_A_CLASS))
		return -EINVAL;
	index = nla_get_u32(info->attrs[TARN_CLASSES_A_CLASS]);
	if (index >= classes->count) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[TARN_CLASSES_A_CLASS], "there is no such class");
		return -ERANGE;
	}
	answer = new_answer(info, nla_total_size(sizeof(classes->class->times)), &header);
	if (!answer)
		return -ENOMEM;
	times = nla_reserve(answer, TARN_CLASSES_A_TIMES, sizeof(classes->class->times));
	if (!times) {
		nlmsg_free(answer);
		return -EMSGSIZE;
	}
	spin_lock_bh(&classes->lock);
	memcpy(nla_data(times), classes->class[index].times, sizeof(classes->class->times));
	spin_unlock_bh(&classes->lock);
	genlmsg_end(answer, header);
	return genlmsg_reply(answer, info);
}

/* GENL_ADMIN_PERM: the right to administer the network of the host, for waiting packets take its memory, not a namespace's. */
static const struct genl_ops operations[] = {
	{
		.cmd = TARN_CLASSES_CMD_SET,
		.flags = GENL_ADMIN_PERM,
		.doit = do_set,
		.policy = set_policy,
		.maxattr = ARRAY_SIZE(set_policy) - 1,
	},
	{
		.cmd = TARN_CLASSES_CMD_STOP,
		.flags = GENL_ADMIN_PERM,
		.doit = do_stop,
		.policy = number_policy,
		.maxattr = ARRAY_SIZE(number_policy) - 1,
	},
	{
		.cmd = TARN_CLASSES_CMD_RESET,
		.flags = GENL_ADMIN_PERM,
		.doit = do_reset,
		.policy = number_policy,
		.maxattr = ARRAY_SIZE(number_policy) - 1,
	},
	{
		.cmd = TARN_CLASSES_CMD_GET,
		.flags = GENL_ADMIN_PERM,
		.doit = do_get,
		.policy = number_policy,
		.maxattr = ARRAY_SIZE(number_policy) - 1,
	},
	{
		.cmd = TARN_CLASSES_CMD_GET_TIMES,
		.flags = GENL_ADMIN_PERM,
		.doit = do_get_times,
		.policy = times_policy,
		.maxattr = ARRAY_SIZE(times_policy) - 1,
	},
	{
		.cmd = TARN_CLASSES_CMD_CHANGE_CLIENTS,
		.flags = GENL_ADMIN_PERM,
		.doit = do_change_clients,
		.policy = clients_policy,
		.maxattr = TARN_CLASSES_A_MAX,
	},
	{
		.cmd = TARN_CLASSES_CMD_FIND_CLIENT,
		.flags = GENL_ADMIN_PERM,
		.doit = do_find_client,
		.policy = clients_policy,
		.maxattr = TARN_CLASSES_A_MAX,
	},
	{
		.cmd = TARN_CLASSES_CMD_GET_CLIENTS,
		.flags = GENL_ADMIN_PERM,
		.start = clients_dump_start,
		.dumpit = clients_dump,
		.done = clients_dump_done,
		.policy = clients_policy,
		.maxattr = TARN_CLASSES_A_MAX,
	},
	{
		.cmd = TARN_CLASSES_CMD_CLEAR_CLIENTS,
		.flags = GENL_ADMIN_PERM,
		.doit = do_clear_clients,
		.policy = clients_policy,
		.maxattr = TARN_CLASSES_A_MAX,
	},
};

struct genl_family netlink_family = {
	.name = TARN_CLASSES_FAMILY,
	.version = TARN_CLASSES_VERSION,
	.netnsok = true,
	.module = THIS_MODULE,
	.ops = operations,
	.n_ops = ARRAY_SIZE(operations),
	.resv_start_op = TARN_CLASSES_CMD_UNSPEC + 1,
};

int netlink_register(void)
{
	return genl_register_family(&netlink_family);
}

void netlink_unregister(void)
{
	genl_unregister_family(&netlink_family);
}
