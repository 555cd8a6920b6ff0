// The three kinds of products that all sweeps are made of.

#pragma once

#include "vectors.hpp"

// A product is A B, or A B + sign · A′ B′. Sums of blocks of R rows and S columns are kept in registers.
struct Product { const float *a, *b; };

constexpr int TALL = WIDE == 16 ? 7 : 3;  // R, limited by the number of registers

template <class Block> static void in_blocks(int n, Block block) {
    int i = 0;
    for (; i + TALL <= n; i += TALL) block(i, std::integral_constant<int, TALL>());
    for (; i + 3 <= n; i += 3) block(i, std::integral_constant<int, 3>());
    for (; i < n; ++i) block(i, std::integral_constant<int, 1>());
}

// C (n, w) from A (n, inner) with arbitrary strides (it may be transposed) and B (inner, w).
struct Rows { int n, inner; long w, a_row, a_column, b_row, c_row; };

template <int L, int R, int S>
static void rows_block(const Rows& s, float* c, Product p, Product q, float sign, bool add, int i, long at) {
    using T = Lanes<L>;
    typename T::V sums[R][S] = {};
    auto accumulate = [&](Product p) {
        for (int k = 0; k < s.inner; ++k) {
            typename T::V right[S];
            for (int j = 0; j < S; ++j) right[j] = T::load(p.b + k * s.b_row + at + j * L);
            for (int r = 0; r < R; ++r)
                for (int j = 0; j < S; ++j) sums[r][j] += p.a[(i + r) * s.a_row + k * s.a_column] * right[j];
        }
    };
    if (q.a) {
        accumulate(q);
        for (auto& line : sums) for (auto& sum : line) sum *= sign;
    }
    accumulate(p);
    for (int r = 0; r < R; ++r)
        for (int j = 0; j < S; ++j) {
            float* out = c + (i + r) * s.c_row + at + j * L;
            T::store(out, add ? T::load(out) + sums[r][j] : sums[r][j]);
        }
}

template <int L>
static void rows(const Rows& s, float* c, Product p, Product q = {}, float sign = 1, bool add = false) {
    long at = 0;
    for (; at + 2 * L <= s.w; at += 2 * L)
        in_blocks(s.n, [&](int i, auto r) { rows_block<L, r, 2>(s, c, p, q, sign, add, i, at); });
    for (; at < s.w; at += L)
        in_blocks(s.n, [&](int i, auto r) { rows_block<L, r, 1>(s, c, p, q, sign, add, i, at); });
}

// Sums of products of vectors; strides are `row` and `step` in A, `column` and `next` in B.
struct Vectors { int count; long row, step, column, next; };

template <int L, int R, int S> struct Sums {
    using T = Lanes<L>;
    typename T::V of[R][S] = {};

    Sums(const Vectors& v, Product p, Product q, float sign) {
        if (q.a) {
            add(v, q);
            for (auto& line : of) for (auto& sum : line) sum *= sign;
        }
        add(v, p);
    }

    void add(const Vectors& v, Product p) {
        for (int t = 0; t < v.count; ++t) {
            typename T::V right[S];
            for (int s = 0; s < S; ++s) right[s] = T::load(p.b + s * v.column + t * v.next);
            for (int r = 0; r < R; ++r) {
                const auto left = T::load_once(p.a + r * v.row + t * v.step);
                for (int s = 0; s < S; ++s) of[r][s] += left * right[s];
            }
        }
    }
};

// Blocks of sums for all i and j; `done` stores them.
template <int L, class Done>
static void all_sums(int n, const Vectors& v, Product p, Product q, float sign, Done done) {
    auto from = [&](Product p, int i, int j) -> Product {
        return p.a ? Product{p.a + i * v.row, p.b + j * v.column} : p;
    };
    in_blocks(n, [&](int i, auto r) {
        auto block = [&](int j, auto s) {
            const Sums<L, r, s> sums(v, from(p, i, j), from(q, i, j), sign);
            for (int k = 0; k < r; ++k)
                for (int l = 0; l < s; ++l) done(i + k, j + l, sums.of[k][l]);
        };
        int j = 0;
        for (; j + 3 <= n; j += 3) block(j, std::integral_constant<int, 3>());
        for (; j < n; ++j) block(j, std::integral_constant<int, 1>());
    });
}

// C (n, n) from A (n, w) and Bᵀ, both with row stride `row`.
template <int L>
static void contract(float* c, int n, long w, long row, Product p, Product q = {}, float sign = 1) {
    const Vectors v = {int(w / L), row, L, row, L};
    all_sums<L>(n, v, p, q, sign, [&](int i, int j, auto sum) { c[i * n + j] = Lanes<L>::sum(sum); });
}

// C (n, n, F), for every channel; `turned`: with Aᵀ and A′ᵀ.
template <int L>
static void channels(float* c, bool turned, int n, int width, Product p, Product q = {}, float sign = 1) {
    const long line = long(n) * width;
    const Vectors v = {n, turned ? width : line, turned ? line : width, width, line};
    for (int f = 0; f < width; f += L) {
        const Product one = {p.a + f, p.b + f}, two = q.a ? Product{q.a + f, q.b + f} : q;
        all_sums<L>(n, v, one, two, sign, [&](int i, int j, auto sum) {
            Lanes<L>::store(c + i * line + long(j) * width + f, sum);
        });
    }
}
