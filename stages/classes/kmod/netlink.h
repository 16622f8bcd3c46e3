/* SPDX-License-Identifier: GPL-2.0 */
/* The generic netlink interface: see ../uapi.h. */
#ifndef TARN_CLASSES_NETLINK_H
#define TARN_CLASSES_NETLINK_H

#include <net/genetlink.h>

extern struct genl_family netlink_family;

/* The beginning of an answer, or NULL. */
struct sk_buff *new_answer(struct genl_info *info, size_t payload, void **header);

int netlink_register(void);
void netlink_unregister(void);

#endif
