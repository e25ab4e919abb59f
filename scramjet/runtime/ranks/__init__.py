"""Several processes that train one run together: how they find each other, exchange numbers and notice a lost one."""
