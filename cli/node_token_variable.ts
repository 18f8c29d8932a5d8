/** The environment variable with the token of `postern node`. */
export const NODE_TOKEN_VARIABLE = "POSTERN_NODE_TOKEN";
