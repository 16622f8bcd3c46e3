/* SPDX-License-Identifier: GPL-2.0 */
/* The commands about clients: see ../uapi.h. */
#ifndef TARN_CLASSES_NETLINK_CLIENTS_H
#define TARN_CLASSES_NETLINK_CLIENTS_H

#include <net/genetlink.h>

#include <uapi.h>

extern const struct nla_policy clients_policy[TARN_CLASSES_A_MAX + 1];

int do_change_clients(struct sk_buff *skb, struct genl_info *info);
int do_find_client(struct sk_buff *skb, struct genl_info *info);
int do_clear_clients(struct sk_buff *skb, struct genl_info *info);
int clients_dump_start(struct netlink_callback *callback);
int clients_dump(struct sk_buff *skb, struct netlink_callback *callback);
int clients_dump_done(struct netlink_callback *callback);

#endif
