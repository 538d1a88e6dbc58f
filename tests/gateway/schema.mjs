// JSON Schema as far as the OpenAPI document uses it. A keyword that is not known here is an error:
// what nobody checks should not be written down.

const types = {
    object: (v) => typeof v === 'object' && v !== null && !Array.isArray(v),
    array: Array.isArray,
    string: (v) => typeof v === 'string',
    integer: Number.isInteger,
    boolean: (v) => typeof v === 'boolean',
};

const formats = {
    'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/,
    uri: /^[a-z]+:\S+$/,
};

const checks = {
    type: (v, type) => types[type](v) || `is no ${type}`,
    enum: (v, list) => list.includes(v) || `is none of ${list.join(', ')}`,
    const: (v, only) => v === only || `is not ${only}`,
    pattern: (v, pattern) => typeof v !== 'string' || new RegExp(pattern).test(v) || `does not match ${pattern}`,
    format: (v, format) => formats[format].test(v) || `is no ${format}`,
    minimum: (v, least) => v >= least || `is less than ${least}`,
    maximum: (v, most) => v <= most || `is more than ${most}`,
    minLength: (v, least) => typeof v !== 'string' || v.length >= least || 'is too short',
    maxLength: (v, most) => typeof v !== 'string' || v.length <= most || 'is too long',
};

const silent = new Set(['description', 'default', 'contentEncoding']);

export function pointer(document, ref) {
    if (!ref.startsWith('#/')) throw new Error(`${ref} leads out of the document`);
    let at = document;
    for (const step of ref.slice(2).split('/')) at = at?.[step.replaceAll('~1', '/').replaceAll('~0', '~')];
    if (at === undefined) throw new Error(`${ref} leads nowhere`);
    return at;
}

// Everything that is wrong with a value, each with its place.
export function flaws(document, schema, value, place = '') {
    const found = [];
    const tell = (text) => found.push(`${place || '/'} ${text}`);
    for (const [keyword, rule] of Object.entries(schema)) {
        if (keyword === '$ref') {
            found.push(...flaws(document, pointer(document, rule), value, place));
        } else if (keyword === 'anyOf') {
            if (!rule.some((one) => flaws(document, one, value).length === 0)) tell('fits none of anyOf');
        } else if (keyword === 'required') {
            for (const name of rule) if (!(name in value)) tell(`has no ${name}`);
        } else if (keyword === 'items') {
            value.forEach((one, n) => found.push(...flaws(document, rule, one, `${place}/${n}`)));
        } else if (keyword === 'properties') {
            for (const [name, one] of Object.entries(rule))
                if (name in value) found.push(...flaws(document, one, value[name], `${place}/${name}`));
        } else if (keyword === 'additionalProperties') {
            for (const name of Object.keys(value)) {
                if (name in (schema.properties ?? {})) continue;
                if (rule === false) tell(`has ${name}, which is not described`);
                else if (rule !== true) found.push(...flaws(document, rule, value[name], `${place}/${name}`));
            }
        } else if (keyword in checks) {
            const verdict = checks[keyword](value, rule);
            if (verdict !== true) tell(`${verdict}: ${JSON.stringify(value)}`);
            if (keyword === 'type' && verdict !== true) return found;
        } else if (!silent.has(keyword)) {
            throw new Error(`the keyword ${keyword} is not known here`);
        }
    }
    return found;
}
